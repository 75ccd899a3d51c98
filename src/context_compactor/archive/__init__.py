"""Archive: the originals of everything that left the context.

Read `originals.py` (how one is found again by its id), `display.py` (how a turn reads) and `search/` (how it is found
by words). `storage.py` puts originals into a store; `export.py` writes them as plain files, `refetch.py` fetches them
again where they came from, `redaction.py` keeps secrets out of all of it.
"""
