"""Search: find passages of the originals by words, without a model and without a network.

    text → passages → index → a query's words weighed → every passage scored with its neighbours → packed → hits

Read `lines.py` (the line above as code), then `passages.py`, `words.py`, `query.py`, `index.py` and `pack.py`.
`exact.py` finds tokens that are spelled out, `exchanges.py` what was asked and concluded around a passage. Every stage
is a plain function or value over a `Passage`. `search.py` takes all passages of some originals, `stored.py` those that
the index of a store finds in the archive of a session.
"""
