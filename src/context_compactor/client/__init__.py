"""The Python client of a server: the verbs of a session, over HTTP.

    with Client("http://127.0.0.1:8377", token="cct_…") as client:
        client.create("run-42", window=200_000)
        client.append("run-42", {"role": "user", "content": "Hello"})
        reply = ask_the_model(client.context("run-42").messages)

`AsyncClient` has the same verbs to await. Nothing is needed beyond the core package. The verbs are declared in
`sessions/verbs.py`; read `client.py`, `transport.py` (connections and retries) and `responses.py` (answers, errors and
events), then `async_client.py`.
"""

from __future__ import annotations

from context_compactor.client.async_client import AsyncClient
from context_compactor.client.client import Client

__all__ = ["AsyncClient", "Client"]
