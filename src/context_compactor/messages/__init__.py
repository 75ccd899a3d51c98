"""Conversations as values: read from a provider's format, checked, repaired, and written back.

Read in this order: `message` (the values), `turn` (what is kept or removed whole), `dialect` (what a format
must be able to do), `anthropic`, `openai_chat` and `openai_responses` (the three formats), `detect` (which
one a list speaks), `boundaries` (what is legal) and `repair` (how an illegal history becomes legal).
`media`, `jsontext`, `copying` and `hashing` are small helpers of these.
"""
