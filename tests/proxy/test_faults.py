"""Whatever is killed, full, locked or cut: requests pass, and no exchange is lost whose end the client has seen."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.proxy.journal import (
    ExchangeReply,
    ExchangeRequest,
    Journal,
    finished,
    left_behind,
    read_exchange,
    remove_folder,
)
from context_compactor.proxy.recorder import Recorder, RecorderConfig
from tests.proxy.apis import ANTHROPIC, APIS, CHAT, RESPONSES, Api, answer_to
from tests.proxy.proxies import Place, ProxyCommand, proxied
from tests.proxy.test_recording import Dialog, histories, key
from tests.proxy.upstream import (
    HANG_UP,
    Heard,
    Step,
    Upstream,
    answer,
    ask,
    chunk,
    connected,
    digest,
    request,
    stream_head,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.slow  # programs that are killed and started again take their time

Raw = dict[str, Any]


def noted(number: int = 1, **more: Any) -> ExchangeRequest:
    given = {"protocol": "anthropic", "path": "/v1/messages", "upstream": "http://x", "mode": "on", **more}
    at = "2026-11-01T00:00:00.000+00:00"
    return ExchangeRequest(id=f"{number:024x}", at=at, scope="s" * 24, credential="c", headers={}, **given)


# The journal


@given(chunks=st.lists(st.binary(max_size=40), max_size=4), body=st.binary(max_size=60), is_complete=st.booleans())
def test_a_journal_file_that_ends_anywhere_is_read_as_far_as_it_goes(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], body: bytes, is_complete: bool
) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal"))
    exchange = journal.begin(noted(), body)
    exchange.begin_reply(ExchangeReply(status=200, content_type="application/json"))
    for content in chunks:
        exchange.add(content)
    path = exchange.end(is_complete=is_complete)
    assert path is not None
    whole = path.read_bytes()
    seen = 0
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        found = read_exchange(path)
        if found is None:
            assert seen == 0
            continue
        assert found.body == body
        assert b"".join(chunks).startswith(found.content)
        assert len(found.content) >= seen
        seen = len(found.content)
    assert found is not None
    assert (found.content, found.is_complete) == (b"".join(chunks), is_complete)
    journal.close()


def test_a_journal_file_that_ends_anywhere_is_recorded_without_an_error(tmp_path: Path) -> None:
    """A folder of a killed proxy with the same exchange cut at every byte; what was whole is in a session."""
    place = Place(tmp_path)
    root = place.home / "proxy"
    journal = Journal(root)
    body = CHAT.body([CHAT.user("cut")])
    exchange = journal.begin(noted(protocol="openai-chat"), body)
    exchange.begin_reply(ExchangeReply(status=200, content_type="application/json"))
    exchange.add(json.dumps(CHAT.whole("yes")).encode())
    path = exchange.end(is_complete=True)
    assert path is not None
    whole = path.read_bytes()
    path.unlink()
    for length in range(len(whole) + 1):
        (journal.folder / f"{length:020d}-x.open").write_bytes(whole[:length])
    journal.close()
    with Upstream() as upstream, proxied(upstream.url, place):
        pass
    assert place.journal() == []
    assert [CHAT.user("cut"), CHAT.said("yes")] in histories(place.recorded())


def test_a_folder_of_a_proxy_that_just_starts_is_never_taken_for_one_that_ended(tmp_path: Path) -> None:
    root = tmp_path / "proxy"
    root.mkdir()
    is_over = threading.Event()

    def take() -> None:
        while not is_over.is_set():
            for folder, lock in left_behind(root):
                remove_folder(folder, lock)

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    journals: list[Journal] = []
    try:
        for number in range(400):
            journal = Journal(root)
            journals.append(journal)
            exchange = journal.begin(noted(number), b"{}")
            assert (journal.locks, exchange.problem) != ([], ""), number
            assert exchange.end(is_complete=False) is not None, exchange.problem
    finally:
        is_over.set()
        for taker in takers:
            taker.join()
        for journal in journals:
            journal.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_exchange_that_is_recorded_twice_is_one_session(tmp_path: Path, api: Api) -> None:
    """A recorder that is killed before it has removed a file finds it again."""
    place = Place(tmp_path)
    journal = Journal(place.home / "proxy")
    recorder = Recorder(RecorderConfig(store=place.store, folder=str(journal.folder)))
    history: list[Raw] = []
    for number in range(3):
        history.append(api.user(f"question {number}"))
        exchange = journal.begin(noted(number, protocol=api.name), api.body(history))
        exchange.begin_reply(ExchangeReply(status=200, content_type="application/json"))
        exchange.add(json.dumps(api.whole(f"answer {number}")).encode())
        exchange.end(is_complete=True)
        history.append(api.said(f"answer {number}"))
        (path,) = finished(journal.folder)
        found = read_exchange(path)
        assert found is not None
        recorder.record(found)
        recorder.record(found)
        path.unlink()
    recorder.close()
    journal.close()
    assert place.recorded().only == history
    assert len(place.rows()) == 3


# The recorder


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_killed_recorder_is_started_again_and_nothing_is_lost(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider()) as upstream, ProxyCommand(upstream.url, place) as proxy:
        dialog = Dialog(api, proxy.url)
        dialog.ask("before")
        for number in range(2):
            recorder = proxy.recorder()
            assert recorder is not None
            recorder.suspend()
            dialog.ask(f"while it is stopped {number}")
            recorder.kill()
            dialog.ask(f"while it is gone {number}")
            wait_for(lambda gone=recorder.pid: (found := proxy.recorder()) and found.pid != gone)  # type: ignore[misc]
        # Nobody asks anything more: what waits is recorded all the same.
        wait_for(lambda: place.home.joinpath("compactor.db").exists() and len(place.rows()) == 5, lambda: proxy.said)
        wait_for(lambda: place.journal() == [])
    assert place.recorded().only == dialog.history


def test_requests_pass_while_the_recorder_hangs(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Upstream(CHAT.provider()) as upstream, ProxyCommand(upstream.url, place) as proxy:
        recorder = proxy.recorder()
        assert recorder is not None
        os.kill(recorder.pid, signal.SIGSTOP)
        try:
            dialogs = [Dialog(CHAT, proxy.url) for _ in range(20)]
            for number, dialog in enumerate(dialogs):
                dialog.ask(f"conversation {number}")
        finally:
            os.kill(recorder.pid, signal.SIGCONT)
    assert histories(place.recorded()) == sorted((dialog.history for dialog in dialogs), key=json.dumps)


def test_a_locked_store_holds_up_no_request_and_gets_all_of_them_later(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Upstream(CHAT.provider()) as upstream, ProxyCommand(upstream.url, place) as proxy:
        dialog = Dialog(CHAT, proxy.url)
        dialog.ask("before")
        wait_for(lambda: len(place.rows()) == 1)
        with sqlite3.connect(place.home / "compactor.db", isolation_level=None) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            for number in range(3):
                dialog.ask(f"while it is locked {number}")
            wait_for(lambda: "recording waits" in proxy.said)
            assert len(place.journal()) == 3
            lock.execute("ROLLBACK")
        lock.close()
        wait_for(lambda: len(place.rows()) == 4)
    assert place.recorded().only == dialog.history


def test_a_store_that_is_full_holds_up_no_request(tmp_path: Path) -> None:
    """No file may become larger than 3 MB, neither the store nor one of the journal."""
    place = Place(tmp_path)
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))"
    with Upstream(CHAT.provider()) as upstream, ProxyCommand(upstream.url, place, prefix=small) as proxy:
        Dialog(CHAT, proxy.url).ask("before")
        for number in range(4):
            large = CHAT.body([CHAT.user(f"{number}" + "x" * 4_000_000)])
            answered = ask(proxy.url, CHAT.target, large, headers=key())
            assert (answered.status, digest(upstream.heard[-1].body)) == (200, digest(large))
        Dialog(CHAT, proxy.url).ask("after")
    assert "not recorded" in proxy.said
    found = histories(place.recorded())
    for text in ("before", "after"):
        assert [CHAT.user(text), CHAT.said(f"Answer to {text} «ß» 🧪")] in found


def test_a_reply_that_fills_the_disk_reaches_its_client_whole(tmp_path: Path) -> None:
    place = Place(tmp_path)
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))"
    said = answer(b"y" * 8_000_000)
    with Upstream(said) as upstream, ProxyCommand(upstream.url, place, prefix=small) as proxy:
        for _ in range(2):
            answered = ask(proxy.url, CHAT.target, CHAT.body([CHAT.user("hi")]), headers=key())
            assert (answered.is_whole, digest(answered.body)) == (True, digest(b"y" * 8_000_000))
        wait_for(lambda: place.journal() == [])


def test_a_journal_folder_that_is_gone_holds_up_no_request(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with Upstream(CHAT.provider()) as upstream, ProxyCommand(upstream.url, place) as proxy:
        (place.home / "proxy").rename(tmp_path / "elsewhere")
        dialog = Dialog(CHAT, proxy.url, is_stream=True)
        for number in range(3):
            dialog.ask(f"question {number}")
    assert proxy.said.count("not recorded") == 1


# The proxy


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_an_exchange_whose_end_was_seen_survives_a_kill_at_once(tmp_path: Path, api: Api, is_stream: bool) -> None:
    place = Place(tmp_path)
    with Upstream(api.provider()) as upstream:
        proxy = ProxyCommand(upstream.url, place)
        dialog = Dialog(api, proxy.url, is_stream=is_stream)
        for number in range(4):
            with proxy:
                dialog.ask(f"question {number}")
                proxy.kill()
        with proxy:
            wait_for(lambda: len(place.rows()) == 4, lambda: proxy.said)
    assert place.recorded().only == dialog.history


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_reply_whose_last_event_was_seen_survives_a_kill_before_the_stream_ends(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    said = api.stream("All of it.")
    with Upstream(lambda _: [stream_head(), chunk(said), HANG_UP]) as upstream:
        with ProxyCommand(upstream.url, place) as proxy, connected(proxy.url) as wire:
            body = api.body([api.user("hi")], is_stream=True)
            wire.connection.sendall(request(proxy.url, api.target, body, key()))
            wire.read_head()
            received = b""
            while len(received) < len(said):
                received += wire.read_chunk()
            proxy.kill()
        with ProxyCommand(upstream.url, place):
            pass
    assert place.recorded().only == [api.user("hi"), api.said("All of it.")]


@pytest.mark.parametrize("is_stopped", [False, True], ids=["the old recorder ends", "the old recorder still runs"])
def test_what_a_killed_proxy_has_left_is_recorded_without_another_start(tmp_path: Path, is_stopped: bool) -> None:
    place = Place(tmp_path)
    said = ANTHROPIC.stream("All of it.")
    recorder: psutil.Process | None = None
    with Upstream(lambda _: [stream_head(), chunk(said), HANG_UP]) as upstream:
        proxy = ProxyCommand(upstream.url, place).start()
        try:
            recorder = proxy.recorder()
            assert recorder is not None
            if is_stopped:
                recorder.suspend()
            with connected(proxy.url) as wire:
                body = ANTHROPIC.body([ANTHROPIC.user("hi")], is_stream=True)
                wire.connection.sendall(request(proxy.url, ANTHROPIC.target, body, key()))
                wire.read_head()
                wire.read_chunk()
                proxy.kill()
            with proxy:
                if is_stopped:
                    recorder.resume()
                wait_for(lambda: place.journal() == [] and len(place.rows()) == 1, lambda: proxy.said)
        finally:
            proxy.kill()
            with suppress(psutil.NoSuchProcess):
                if recorder is not None:
                    recorder.resume()
    assert len(place.rows()) == 1


def test_a_request_that_was_under_way_at_a_kill_breaks_no_later_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    half = RESPONSES.stream("Half of it.")[:-200]
    with Upstream(lambda _: [stream_head(), chunk(half), HANG_UP]) as upstream:
        with ProxyCommand(upstream.url, place) as proxy, connected(proxy.url) as wire:
            body = RESPONSES.body([RESPONSES.user("hi")], is_stream=True)
            wire.connection.sendall(request(proxy.url, RESPONSES.target, body, key()))
            wire.read_head()
            wire.read_chunk()
            proxy.kill()
        upstream.respond = RESPONSES.provider()
        with proxy:
            dialog = Dialog(RESPONSES, proxy.url, is_stream=True)
            dialog.ask("hi")
            dialog.ask("go on")
    assert dialog.history in histories(place.recorded())
    assert "Half" not in json.dumps(histories(place.recorded()))


# All at once

REQUESTS = 500
CONVERSATIONS = 5


def _long_answers(api: Api) -> Any:
    """A provider whose every fifth reply is long, so that slow readers are slow."""

    def respond(heard: Heard) -> Iterator[Step]:
        body = json.loads(heard.body)
        text = answer_to(body[api.field])
        padding = "long " * 40_000 if "long" in text else ""
        return api.answers(text + padding, is_stream=bool(body.get("stream")))

    return respond


class Unsteady:
    """A client whose requests are cut, read slowly and sent again until one is answered to its end."""

    def __init__(self, api: Api, proxy: ProxyCommand, number: int) -> None:
        self.api, self.proxy, self.number = api, proxy, number
        self.random = random.Random(number)
        self.history: list[Raw] = []
        self.sent = 0
        self.seen = 0
        self.problems: list[str] = []
        self.is_over = False

    def run(self) -> None:
        for turn in range(REQUESTS // CONVERSATIONS):
            kind = self.random.choice(["plain"] * 6 + ["slow", "cut before", "cut within"])
            length = "long" if kind == "slow" else "short"
            text = f"conversation {self.number}, turn {turn}, {length}"
            if turn % 20 == 0:
                self.history = []  # a new one, so that histories stay short
            self.history.append(self.api.user(text))
            if kind.startswith("cut"):
                self._attempt("cut", kind)
            while not self._attempt(text, kind if kind == "slow" else "plain"):
                wait_for(lambda: self.is_over or self._is_there())
                if self.is_over:
                    return
            if self.problems:
                return

    def _attempt(self, text: str, kind: str) -> bool:
        """Whether the answer came to its end."""
        self.sent += 1
        body = self.api.body(self.history, is_stream=self.random.random() < 0.7)
        whole = request(self.proxy.url, self.api.target, body, key())
        try:
            with connected(self.proxy.url, receive_buffer=4_096 if kind == "slow" else 0) as wire:
                if kind == "cut before":
                    wire.connection.sendall(whole[: self.random.randrange(len(whole))])
                    return False
                wire.connection.sendall(whole)
                if kind == "cut within":
                    wire.read_head()
                    return False
                answered = wire.read_answer()
        except (OSError, EOFError):
            return False  # it was killed in the middle of this
        if not answered.is_whole:
            return False
        if answered.status != 200:
            self.problems.append(f"{answered.line!r} {answered.body[:500]!r}")
        padding = "long " * 40_000 if "long" in text else ""
        self.history.append(self.api.said(f"Answer to {text} «ß» 🧪{padding}"))
        self.seen += 1
        return True

    def _is_there(self) -> bool:
        try:
            with connected(self.proxy.url):
                return True
        except OSError:
            return False


def _kill_now_and_then(proxy: ProxyCommand, seen: Callable[[], int], is_over: Callable[[], bool]) -> None:
    moments = random.Random(4711)
    after = 0
    while not is_over():
        after += moments.randrange(10, 45)
        wait_for(lambda after=after: is_over() or seen() >= after, pause=0.001)  # type: ignore[misc]
        if moments.random() < 0.5:
            proxy.kill_recorder()
        if moments.random() < 0.6:
            proxy.kill()
            proxy.start()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_random_kills_cuts_and_slow_readers_lose_nothing(tmp_path: Path, api: Api) -> None:
    place = Place(tmp_path)
    with Upstream(_long_answers(api)) as upstream:
        proxy = ProxyCommand(upstream.url, place).start()
        clients = [Unsteady(api, proxy, number) for number in range(CONVERSATIONS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()

        def seen() -> int:
            return sum(client.seen for client in clients)

        def is_over() -> bool:
            return not any(thread.is_alive() for thread in threads)

        try:
            _kill_now_and_then(proxy, seen, is_over)
        finally:
            for client in clients:
                client.is_over = True
            proxy.stop()
            for thread in threads:
                thread.join()
        with proxy:  # takes what the killed ones have left
            wait_for(lambda: place.journal() == [], lambda: f"{place.journal()} {proxy.said[-3_000:]}")
    assert [client.problems for client in clients] == [[]] * CONVERSATIONS
    assert seen() == REQUESTS
    found = histories(place.recorded())
    ended = [client.history for client in clients]
    assert [history[0] for history in ended if history not in found] == []
    said = {json.dumps(message) for history in found for message in history}
    for client in clients:
        for message in client.history:
            assert json.dumps(message) in said
    rows = place.rows()
    assert sum(row.has_usage for row in rows) >= REQUESTS
    assert "Traceback" not in proxy.said
