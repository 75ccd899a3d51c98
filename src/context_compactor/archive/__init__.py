"""Archive: the originals of everything that left the context.

Read `gather.py` (what is archived), `archive.py` (how it is found again by its id) and `search/` (by words).
"""
