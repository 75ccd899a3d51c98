"""`compactor serve --demo` shows compactions of a real session, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from context_compactor.client import Client
from context_compactor.server.demo import demo_file
from tests.waiting import PATIENCE

_CODE = """
import sys
from context_compactor.cli.main import main
main(["serve", "--demo", "--port", "0", *sys.argv[1:]])
"""


@contextmanager
def _demo(folder, *more: str):
    here, scratch = folder / "here", folder / "scratch"
    here.mkdir()
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "COMPACTOR_SUMMARIZER": "openai/nobody"}
    with subprocess.Popen(
        [sys.executable, "-c", _CODE, *more], cwd=here, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_real_session_is_compacted_before_ones_eyes_and_then_all_is_gone(tmp_path, number):
    with _demo(tmp_path) as process:
        line = process.stderr.readline()
        assert "open http://127.0.0.1:" in line
        address = line.split("open ")[1].split(";")[0]
        with Client(address) as client:
            events = next(client.events(after="0", types=["session.compacted"]))
            assert events.payload["tokens_after"] < events.payload["tokens_before"]
            assert events.payload["model_calls"] == []
            assert client.context(events.session_id).messages
            live = {each.id for each in client.every_session()}
            assert {"demo-16k", "demo-24k", "demo-48k", "demo-finished"} >= live
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == "stopped; all requests were completed\n"
    assert list((tmp_path / "here").iterdir()) == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_second_ctrl_c_leaves_nothing_behind_either(tmp_path):
    with _demo(tmp_path) as process:
        address = process.stderr.readline().split("open ")[1].split(";")[0]
        with Client(address) as client:
            next(client.events(after="0", types=["session.compacted"]))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) in (0, 130)
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("more", [["--store", "memory:"], ["--token-file", "tokens"]])
def test_a_demo_has_a_store_and_rules_of_its_own(tmp_path, more):
    with _demo(tmp_path, *more) as process:
        assert process.wait(PATIENCE) == 2
        assert "--demo uses its own temporary store" in process.stderr.read()


def test_the_session_that_is_told_ships_with_the_package():
    assert demo_file().is_file()
