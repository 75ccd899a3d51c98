"""Counting tokens, the room there is, how full a context is, and when to compact."""
