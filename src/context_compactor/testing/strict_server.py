"""A server that answers like five providers, from a script, and refuses every request that they would refuse.

Its rules are written from the providers' documentation and share no code with the package: it is there to check it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Any

from msgspec import Struct

from context_compactor.testing.refusing import Body, RuleError, StrictProvider
from context_compactor.testing.replies import ScriptedReply, random_replies
from context_compactor.testing.streams import StreamEvent, in_chunks
from context_compactor.testing.strict_anthropic import StrictAnthropic
from context_compactor.testing.strict_bedrock import StrictBedrock
from context_compactor.testing.strict_chat import StrictChat
from context_compactor.testing.strict_gemini import StrictGemini
from context_compactor.testing.strict_responses import StrictResponses


class Request(Struct, frozen=True):
    """One request as it arrived: where it went, its body, and the status of the answer."""

    path: str
    body: Any
    status: int


class Refusal(Struct, frozen=True):
    """One request that was refused: where it went, the rule it broke, what was said, and the request."""

    path: str
    rule: str
    message: str
    body: Any


class StrictServer:
    """Answers `/v1/messages`, `/v1/chat/completions`, `/v1/responses`, Gemini's `generateContent` and Bedrock's
    `converse`, and keeps every request in `requests`.

    Each legal request gets the next reply of the script; the last one is given again when there are no more. Without a
    script the replies come from `random_replies(seed)`. Every other request gets 400 in the provider's form, with the
    rule's name at the end of the message. `window` is the most tokens of a request, counted as four characters each.

        server = StrictServer(window=20_000)
        status, answer = server.respond("/v1/messages", {"model": "m", "max_tokens": 100, "messages": [...]})

        with server.serve() as url:
            client = anthropic.Anthropic(base_url=url, api_key="any")

    Over HTTP a request for a stream is answered with Server-Sent Events, and refused like any other before they begin:
    `"stream": true`, or Gemini's `streamGenerateContent`. Bedrock's `converse-stream`, which is binary, is refused.
    """

    def __init__(self, replies: Iterable[ScriptedReply] | None = None, *, window: int = 20_000, seed: int = 0) -> None:
        self.window = window
        self.answered = 0
        self.requests: list[Request] = []
        self.refusals: list[Refusal] = []
        self._replies = iter(random_replies(seed) if replies is None else replies)
        self._last = ScriptedReply("Done.")
        self._lock = Lock()
        self._providers: tuple[StrictProvider, ...] = (
            StrictAnthropic(window),
            StrictChat(window),
            StrictResponses(window),
            StrictGemini(window),
            StrictBedrock(window),
        )

    def respond(self, path: str, body: Any) -> tuple[int, Body]:
        """The status and the body of the answer to a request; the whole answer also where a stream is asked for."""
        sent = json.dumps(body)
        with self._lock:
            status, answer = self._answer(path, json.loads(sent))
            self.requests.append(Request(path, json.loads(sent), status))
        return status, answer

    def _answer(self, path: str, body: Any) -> tuple[int, Body]:
        provider = self._provider(path)
        if provider is None:
            return 404, {"error": {"message": f"there is no {path} here"}}
        try:
            if not isinstance(body, dict):
                raise RuleError("shape", "the body should be a JSON object")
            tokens = provider.check(path, body)
        except RuleError as error:
            self.refusals.append(Refusal(path, error.rule, error.message, body))
            return error.status, provider.error(error)
        self._last = next(self._replies, self._last)
        self.answered += 1
        return 200, json.loads(json.dumps(provider.reply(path, body, self._last, tokens)))

    def _provider(self, path: str) -> StrictProvider | None:
        return next((each for each in self._providers if each.takes(path)), None)

    def _events(self, path: str, body: Any, answer: Body) -> list[StreamEvent]:
        provider = self._provider(path)
        return provider.events(path, body, answer) if provider else []

    def adopt(self, path: str, body: Body) -> None:
        """Take reasoning, signatures and compactions in a request as handed out by this server, for a conversation that
        was held elsewhere. What it knows already stays bound to what it was bound to.
        """
        provider = next(each for each in self._providers if each.takes(path))
        with self._lock:
            provider.adopt(json.loads(json.dumps(body)))

    @contextmanager
    def serve(self, port: int = 0) -> Iterator[str]:
        """Listen on this machine while the block runs; gives the address."""
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        strict = self

        class Endpoint(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    body = json.loads(content)
                except ValueError:
                    body = None
                path = self.path.partition("?")[0]
                status, answer = strict.respond(path, body)
                events = strict._events(path, body, answer) if status == 200 else []
                self.send_response(status)
                if status != 200 and path.startswith("/model/"):
                    self.send_header("x-amzn-ErrorType", "ValidationException")
                if events:
                    self._send("text/event-stream; charset=utf-8", {"Transfer-Encoding": "chunked"}, in_chunks(events))
                else:
                    written = json.dumps(answer).encode()
                    self._send("application/json", {"Content-Length": str(len(written))}, written)

            def _send(self, content_type: str, framing: dict[str, str], written: bytes) -> None:
                for name, value in {"Content-Type": content_type, **framing}.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):  # a client may leave a stream when it has read enough
                    self.wfile.write(written)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
                """Say nothing: what was refused is in `refusals`."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Endpoint)
        server.daemon_threads = True
        # The server looks this often whether it should end, and half a second is what its tests would wait for.
        thread = Thread(target=server.serve_forever, args=(0.01,), name="strict server", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
