"""Conversations as values: read from a provider's format, checked, repaired, and written back.

Read in this order: `message` (the values), `turn` (what is kept or removed whole), `dialect` (what a format
must be able to do), `anthropic`, `openai_chat` and `openai_responses` (the three formats; the `_read` modules
hold the reading of the larger two), `detect` (which one a list speaks).

What is legal: `boundaries` first, it has the rules and the repair in one place; `pairing` and `placing`
answer the questions it asks, `settling` and `mending` make the repairs, `frames` has the words they use.

Files: `transcripts` reads a conversation from one, whoever wrote it. `media`, `jsontext`, `copying` and
`hashing` are small helpers.
"""
