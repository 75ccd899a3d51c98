"""A living conversation: the log of everything that was said, and the context that is computed from it."""
