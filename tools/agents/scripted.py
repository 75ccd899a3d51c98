"""A model that follows a script, behind the address that a coding agent is told to use. What it is asked is kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Protocol, cast

from msgspec import Struct, structs

from context_compactor.tokens.counting import counter_for

Lane = Literal["main", "sub", "compact", "aside"]
"""Who asks: the agent, its sub-agent, the agent that wants a summary, or one that wants a title and the like."""
Body = Mapping[str, Any]
NUMBER = "{number}"
"""In a summary, the number of it: a model never writes the same twice."""


class Call(Struct, frozen=True):
    """A tool that the model calls. By its label the result is found again; a script stands in `arguments` as it is."""

    label: str
    tool: str
    arguments: Mapping[str, Any] | str
    namespace: str = ""


class Step(Struct, frozen=True):
    """One answer of the model, with what it says before a call, and how many tokens it says it has read.

    Without `tokens` it says as many as its request really holds.
    """

    says: Call | str
    tokens: int | None = 12_000
    note: str = ""


class Request(Struct, frozen=True):
    """What the model was asked: all it reads, and the results in it by the labels of their calls."""

    lane: Lane
    texts: list[str]
    results: dict[str, str]
    parts: Sequence[str] = ()
    """Everything that counts, in the order in which a provider caches it."""
    agent: str = ""
    """The id of the sub-agent that asks."""
    at: float = 0.0
    tokens: int = 0
    cached: int = 0
    """How many of the tokens an earlier request began with."""


class Until(Struct, frozen=True):
    """The model does something again and again until it is told something."""

    is_told: Callable[[Request], bool]
    meanwhile: Step


Doing = Step | Until | Callable[[Request], Step]


class Script(Struct, frozen=True):
    """What the model says, in order. A step may depend on what the model has just been told."""

    main: Sequence[Doing]
    sub: Sequence[Doing]
    summary: str


class Api(Protocol):
    """The way in which an agent talks to its model."""

    @property
    def path(self) -> str:
        """Where it asks."""

    def request(self, body: Body, headers: Mapping[str, str]) -> Request:
        """What a body asks."""

    def events(self, step: Step, read: tuple[int, int], number: int, body: Body) -> Iterator[dict[str, Any]]:
        """An answer, as it is streamed. `read` are the tokens of the request, and those of them that were cached."""


class ScriptedModel:
    """Answers an agent, and remembers its `requests`."""

    def __init__(self, api: Api, script: Script) -> None:
        self._api = api
        self._steps = {"main": list(script.main), "sub": list(script.sub)}
        self._summary = script.summary
        self._lock = threading.Lock()
        self._cache = _Cache()
        self.requests: list[Request] = []

    def answer(self, path: str, body: Body, headers: Mapping[str, str]) -> list[dict[str, Any]] | None:
        """What to stream back; None for a path that is not the model's."""
        if path != self._api.path:
            return None
        began = time.time()
        request = self._api.request(body, headers)
        with self._lock:
            tokens, cached = self._cache.read(request.parts, str(body.get("model", "")))
            request = structs.replace(request, at=began, tokens=tokens, cached=cached)
            self.requests.append(request)
            step = self._step(request)
            read = (tokens, cached) if step.tokens is None else (step.tokens, 0)
            return list(self._api.events(step, read, len(self.requests), body))

    def _step(self, request: Request) -> Step:
        if request.lane == "compact":
            lanes = [each.lane for each in self.requests]
            return Step(self._summary.replace(NUMBER, str(lanes.count("compact"))), None)
        left = self._steps.get(request.lane)
        if not left:
            return Step("Done.", None)
        doing = left[0]
        if isinstance(doing, Until) and not doing.is_told(request):
            return self._again(doing.meanwhile)
        left.pop(0)
        if isinstance(doing, Until):
            return self._step(request)
        return doing if isinstance(doing, Step) else doing(request)

    def _again(self, step: Step) -> Step:
        """The same with a label of its own: an id is given to one call only."""
        if isinstance(step.says, str):
            return step
        return structs.replace(step, says=structs.replace(step.says, label=f"{step.says.label}_{len(self.requests)}"))


class _Cache:
    """What a provider keeps of the requests it has read: their beginnings, however long."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._beginnings: set[bytes] = set()

    def read(self, parts: Sequence[str], model: str) -> tuple[int, int]:
        """How many tokens these are, and how many of them the longest known beginning has."""
        tokens = cached = 0
        beginning = sha256()
        for part in parts:
            tokens += self._size(part, model)
            beginning.update(part.encode())
            beginning.update(b"\0")
            if beginning.digest() in self._beginnings:
                cached = tokens
            self._beginnings.add(beginning.digest())
        return tokens, cached

    def _size(self, part: str, model: str) -> int:
        if part not in self._sizes:
            self._sizes[part] = counter_for(model).count(part)
        return self._sizes[part]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ScriptedModel


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        """An agent asks whether somebody is there."""
        self._whole(200, {})

    def do_GET(self) -> None:
        """Lists of models and the like: there are none."""
        self._whole(404, {"error": {"type": "not_found_error", "message": "not here"}})

    def do_POST(self) -> None:
        """A request to the model."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        events = cast("_Server", self.server).model.answer(self.path.partition("?")[0], body, headers)
        if events is None:
            self.do_GET()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        self.close_connection = True

    def _whole(self, status: int, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def scripted(api: Api, script: Script) -> Iterator[tuple[str, ScriptedModel]]:
    """The model for the length of the block, and its address."""
    server = _Server(("127.0.0.1", 0), _Answering)
    server.model = ScriptedModel(api, script)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", server.model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
