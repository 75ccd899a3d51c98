"""Where sessions rest: an append-only log per session, contents by their hash, and an index over what was archived.

Read `rows.py` (what goes in and comes out), then `sql_store.py`: the verbs, each handed to the part that does it,
which are `sessions.py`, `log.py`, `contents.py` (texts by hash), `shelf.py` (originals; for search `runs.py` and
`ranking.py`), `facts.py`, `holders.py` and `deleting.py`. All of them work on any `database.py`. There are two:
`sqlite.py`, the store of one machine, and `postgres.py`, that of many; the files that begin with these names belong to
them. `migrate.py` has the numbered files in `sql/`, `connect.py` finds the store behind an address, `copying.py` takes
sessions to another one.
"""
