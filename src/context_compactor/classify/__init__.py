"""Classify: what each part of a conversation is and what it is worth.

Read `rules.py` first: it gathers all verdicts. `calls.py` and `kinds.py` read tool calls and results, `failures.py`
finds failed attempts, `lifecycle.py` follows files, `duplicates.py` finds repeats, `pins.py` says what may not be
touched, and `names.py` with `relevance.py` what a text is worth.
"""
