"""A notice after a compaction: for who wants it, where somebody sits, and never in the way."""

from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from context_compactor.sessions.compaction import compact
from context_compactor.sessions.events import Bus, notify, notify_terminal
from context_compactor.sessions.lifecycle import continue_core
from context_compactor.settings import Settings
from tests.sessions.talk import messages, opened
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the program is that of Linux")


class Terminal(io.StringIO):
    """Somebody sits here."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop whose notices are written to a file."""
    shown, program = tmp_path / "shown", tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {shown}.part\nmv {shown}.part {shown}\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("CI", raising=False)
    return shown


def compacted(folder: Path, **options):
    with opened(folder, "run; 42", automatic=False, **options) as session:
        session.append(messages(0, 60))
        return session.compact(target_tokens=1_500)


def test_a_compaction_is_told_on_the_desktop(tmp_path, desktop):
    report = compacted(tmp_path, notify_on_compact=True)
    wait_for(desktop.exists)
    assert f"run; 42: {report.tokens_before:,} → {report.tokens_after:,} tokens" in desktop.read_text()


def test_nothing_is_told_unless_it_is_wanted(tmp_path, desktop):
    assert not Settings().notify_on_compact
    assert compacted(tmp_path).changed
    assert not desktop.exists()


def test_a_server_tells_nobody(tmp_path, desktop):
    compacted(tmp_path, notify_on_compact=True, schedule=lambda _, watched: watched)
    assert not desktop.exists()


def test_a_worker_tells_nobody(tmp_path, desktop):
    with opened(tmp_path, automatic=False, notify_on_compact=True) as session:
        session.append(messages(0, 60))
        core = continue_core("run", session._core.store, Bus())
        assert compact(core, core.ask(target_tokens=1_500, kind="manual")).changed
    assert not desktop.exists()


def test_a_ci_job_tells_nobody(tmp_path, desktop, monkeypatch):
    monkeypatch.setenv("CI", "true")
    compacted(tmp_path, notify_on_compact=True)
    assert not desktop.exists()


def test_a_program_that_hangs_or_fails_is_not_waited_for(tmp_path, desktop):
    program = tmp_path / "bin" / "notify-send"
    program.write_text(f"#!/bin/sh\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.05; done\ntouch {desktop}\nexit 3\n")
    assert compacted(tmp_path, notify_on_compact=True).status == "success"
    assert not desktop.exists()
    (tmp_path / "go").touch()
    wait_for(desktop.exists)


def test_a_program_that_cannot_be_started_does_no_harm(tmp_path, desktop):
    (tmp_path / "bin" / "notify-send").write_text("#!/no/such/program\n")
    assert compacted(tmp_path, notify_on_compact=True).status == "success"


@pytest.mark.parametrize(
    ("environ", "written"),
    [
        ({"TERM_PROGRAM": "iTerm.app"}, "\x1b]9;Context Compactor: done\a"),
        ({"TERM": "xterm-kitty"}, "\x1b]9;Context Compactor: done\a"),
        ({"VTE_VERSION": "7600"}, "\x1b]777;notify;Context Compactor;done\a"),
        ({"VTE_VERSION": "7600", "TMUX": "/tmp/tmux"}, "\a"),
        ({"TERM": "xterm"}, "\a"),
        ({}, "\a"),
    ],
)
def test_a_terminal_is_told_in_its_own_way(environ, written):
    terminal = Terminal()
    notify_terminal("done", terminal, environ)
    assert terminal.getvalue() == written


def test_without_a_desktop_the_terminal_is_rung(tmp_path, desktop, monkeypatch):
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("TERM_PROGRAM", "WezTerm")
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = compacted(tmp_path, notify_on_compact=True)
    assert f"{report.tokens_after:,} tokens" in sys.stderr.getvalue()


def test_what_is_no_terminal_is_left_alone(tmp_path, desktop, monkeypatch, capfd):
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    compacted(tmp_path, notify_on_compact=True)
    assert capfd.readouterr() == ("", "")


def test_a_compaction_that_changed_nothing_is_not_told(tmp_path, desktop):
    with opened(tmp_path, automatic=False, notify_on_compact=True) as session:
        session.append(messages(0, 4))
        notify(session.compact(target_tokens=100_000))
    assert not desktop.exists()
