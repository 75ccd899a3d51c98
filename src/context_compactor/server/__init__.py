"""The server: sessions of many agents over HTTP.

What it can do is declared in `sessions/verbs.py`. Read `sessions.py`, `compactions.py` and `archive.py` (the handlers),
then `app.py` (from a request to a handler and back) and `service.py` (store, open sessions, threads).
`middleware.py` and `tokens.py` say who may see what; `openapi.py` describes the API; `listener.py` listens.

Events: `event_feed.py` (one poll of the store for all), `events.py` (the stream), `webhooks.py` and
`webhook_delivery.py`. Numbers: `metrics.py`. `demo.py` shows all of it.
"""
