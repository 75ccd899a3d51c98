"""Search: find passages of the originals by words, without a model and without a network.

    text → passages → index → a query's words weighed → every passage scored with its neighbours → packed → hits

Read `search.py` (the line above as code), then `passages.py`, `words.py`, `query.py`, `index.py` and `pack.py`. Every
stage is a plain function or value over a `Passage`, so that a store with an index of its own can use the others.
"""
