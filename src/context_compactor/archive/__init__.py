"""Archive: the originals of everything that left the context.

Read `gather.py` (what is archived), `archive.py` (how it is found again by its id), `conversation.py`
(how a turn reads) and `search/` (how it is found by words).
`shelve.py` puts originals into a store and `spans.py` says which messages a turn was made of; `export.py` writes them
as plain files, `refetch.py` fetches them again where they came from, `redact.py` keeps secrets out of all of it.
"""
