"""The server: sessions of many agents over HTTP.

Read `routes.py` (every route, as a table), `talking.py`, `compacting.py` and `recalling.py` (what each does), then
`app.py` (from a request to a verb and back) and `service.py` (store, open sessions, threads). `gate.py`, `tokens.py`
and `scope.py` say who may see what; `appending.py` lets many appends share one transaction; `run.py` listens.

Events: `feed.py` (one look at the desk for all), `readers.py` and `following.py` (the stream), `sender.py` with
`targets.py`, `posting.py` and `signing.py` (webhooks). Numbers: `metrics.py`, `looking.py`. `demo.py` shows all of it.
"""
