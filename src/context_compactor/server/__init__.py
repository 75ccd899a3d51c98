"""The server: sessions of many agents over HTTP.

Read `routes.py` (every route, as a table), `talking.py`, `compacting.py` and `recalling.py` (what each does), then
`app.py` (from a request to a verb and back) and `service.py` (store, open sessions, threads). `gate.py`, `tokens.py`
and `scope.py` say who may see what; `appending.py` lets many appends share one transaction; `run.py` listens.
"""
