"""Readers of the files that hold conversations, one module for each format."""
