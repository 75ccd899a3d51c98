"""Where sessions rest: an append-only log per session, contents by their hash, and an index over what was archived.

Read `rows.py` (what goes in and comes out), then `sqlite.py`, which is the store of one machine; `connect.py` finds the
store behind an address. Beneath it are `database.py` (one SQLite file, safely opened; `explain.py` puts its errors into
words, `forking.py` keeps a fork from harm), `migrate.py` with the numbered files in `sql/`, `contents.py` (texts by
hash), `shelf.py` (originals), for search `runs.py` and `ranking.py`, and `expire.py`.
"""
