"""Conversations as values: read from a provider's format, checked, repaired and written back; one file for each
dialect."""
