"""The story of a conversation: what was done, and how each step ended."""
