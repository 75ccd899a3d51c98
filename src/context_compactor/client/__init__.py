"""The Python client of a server: the verbs of a session, over HTTP.

    with Client("http://127.0.0.1:8377", token="cct_…") as client:
        client.create("run-42", window=200_000)
        client.append("run-42", {"role": "user", "content": "Hello"})
        reply = ask_the_model(client.context("run-42").messages)

`AsyncClient` has the same verbs to await; the two are one implementation. Nothing is needed beyond the core package.
Read `client.py` (the verbs), `transport.py` (connections and retries), `reading.py` (answers and errors), `sse.py` and
`ending.py` (streams of events), `feeding.py` (those for async callers).
"""

from __future__ import annotations

from context_compactor.client.async_client import AsyncClient
from context_compactor.client.client import Client

__all__ = ["AsyncClient", "Client"]
