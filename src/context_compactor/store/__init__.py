"""Where sessions are stored: SQLite and PostgreSQL behind one set of tables.

`sql_store.py` is the store: each operation is a few statements to the tables in `sessions.py` (rows and logs),
`contents.py` (texts by hash) and `originals.py` (the archive and its index). `service_store.py` has what a service
stores beside them: jobs, events, idempotency keys and webhooks, each in a file of its own. All of them use a `Database`
(`database.py`), of which `sqlite.py` and `postgres.py` are the two; `connect.py` opens one from an address.
"""
