"""`compactor compact --model` at a terminal and elsewhere: progress, text, cost and Ctrl-C, in real processes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from msgspec import Struct

from tests import warm
from tests.cli.test_process import COMMAND
from tests.engine.test_model import SHORT
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply, failure
from tests.summarize.samples import GOOD
from tests.waiting import PATIENCE, wait_for

WIRE = FORMATS["openai"]
WHOLE = Reply(pieces=[*WIRE.text(*re.findall(r".{1,40}|\n", GOOD)), *WIRE.end()])
SLOW = Reply(pieces=WIRE.text("## State\n- done: nothing yet\n"), end="stall")
BUSY = failure(503, {"error": {"message": "busy just now"}})


@pytest.fixture
def provider():
    serving = Provider()
    serving.replies = [WHOLE]
    yield serving
    serving.close()


class Screen(Struct):
    """A process whose standard error is a terminal, and everything it has shown there."""

    process: warm.Started
    output: int
    master: int
    shown: bytearray
    reader: threading.Thread

    def until(self, words: bytes) -> None:
        """Wait until it shows these words."""
        wait_for(lambda: words in self.shown or not self.reader.is_alive(), lambda: bytes(self.shown))
        assert words in self.shown, bytes(self.shown)

    def end(self) -> tuple[int, bytes, str]:
        """The exit code, standard output, and the screen."""
        with os.fdopen(self.output, "rb") as output:
            out = output.read()
        code = self.process.wait()
        self.reader.join(PATIENCE)
        os.close(self.master)
        return code, out, self.shown.decode().replace("\r\n", "\n")


@pytest.fixture
def day(tmp_path) -> Path:
    (tmp_path / "day.json").write_text(json.dumps(SHORT), encoding="utf-8")
    return tmp_path


def arguments(provider: Provider, *more: str) -> list[str]:
    model = f"{provider.url}/v1#some"
    return [*COMMAND, "compact", "day.json", "--target", "2000", "--summarizer", model, *more]


def environment(**more: str) -> dict[str, str]:
    prices = '{"some": {"input": 1, "output": 2}}'
    settings = {"SUMMARIZER_WINDOW": "128000", "RETRY_DELAY_SECONDS": "0", "MODELS": prices, "IDLE_SECONDS": "0"}
    own = {f"COMPACTOR_{name}": value for name, value in settings.items()}
    return {**os.environ, "TERM": "xterm", **own, **more}


def at_terminal(folder: Path, command: list[str], **env: str) -> Screen:
    master, slave = pty.openpty()
    output, written = os.pipe()
    with Path(os.devnull).open() as nothing:
        streams = [nothing.fileno(), written, slave]
        process = warm.start(*command[len(COMMAND) :], cwd=folder, env=environment(**env), streams=streams)
    os.close(written)
    os.close(slave)
    shown = bytearray()

    def read() -> None:
        try:
            while piece := os.read(master, 4096):
                shown.extend(piece)
        except OSError:  # the other side is gone: that is how a terminal ends
            pass

    reader = threading.Thread(target=read)
    reader.start()
    return Screen(process, output, master, shown, reader)


def elsewhere(folder: Path, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return warm.run(*command[len(COMMAND) :], cwd=folder, env=environment())


def test_a_terminal_shows_the_model_its_calls_the_retries_the_text_and_the_cost(provider, day):
    provider.replies = [BUSY, WHOLE]
    code, out, screen = at_terminal(day, arguments(provider, "-o", "out.json"), NO_COLOR="1").end()
    assert code == 0
    lines = screen.splitlines()
    assert lines[0].startswith(f"model       {provider.url}/v1#some: window 128,000 tokens")
    assert "asking      call 1 of 1" in lines
    assert any(line.startswith("again       attempt 2 of 3: ") and "busy just now" in line for line in lines)
    assert "answered    call 1 of 1" in lines
    assert GOOD.splitlines()[1] in lines
    assert b"1 calls and 1 retries" in out
    assert re.search(rb"model .*\$0\.0\d+", out)


def test_the_screen_has_no_colour_where_none_is_wanted_and_no_control_characters_of_the_model(provider, day):
    hostile = GOOD + "\x1b[2J\x07 cleared\n"
    provider.replies = [Reply(pieces=[*WIRE.text(hostile), *WIRE.end()])]
    _, _, screen = at_terminal(day, arguments(provider, "-o", "out.json"), NO_COLOR="1").end()
    assert "\x1b" not in screen
    assert "\x07" not in screen


def test_lines_about_the_work_are_dim_where_colour_is_wanted(provider, day):
    env = {"NO_COLOR": ""}
    _, _, screen = at_terminal(day, arguments(provider, "-o", "out.json"), **env).end()
    assert "\x1b[2masking      call 1 of 1\x1b[0m" in screen


def test_without_a_terminal_nothing_is_shown_while_it_works(provider, day):
    provider.replies = [BUSY, WHOLE]
    ran = elsewhere(day, arguments(provider, "--json"))
    assert ran.returncode == 0
    assert ran.stderr == b""
    report = json.loads(ran.stdout)["report"]
    assert report["summarized_by"].endswith("#some")
    assert [call["attempts"] for call in report["model_calls"]] == [2]


def test_json_at_a_terminal_is_alone_on_standard_output(provider, day):
    code, out, screen = at_terminal(day, arguments(provider, "--json"), NO_COLOR="1").end()
    assert code == 0
    assert json.loads(out)["report"]["status"] == "success"
    assert "asking" in screen


@pytest.mark.parametrize("reply", [SLOW, Reply(end="stall")], ids=["amid the text", "before any text"])
def test_ctrl_c_leaves_with_130_and_everything_as_it_was(provider, day, reply):
    provider.replies = [reply]
    (day / "out.json").write_text("[]")
    screen = at_terminal(day, arguments(provider, "-o", "out.json"), NO_COLOR="1")
    screen.until(b"nothing yet" if reply is SLOW else b"asking")
    wait_for(lambda: provider.bodies)
    os.kill(screen.process.pid, signal.SIGINT)
    code, out, shown = screen.end()
    assert (code, out) == (130, b"")
    assert shown.endswith("interrupted: nothing was written\n")
    assert "Traceback" not in shown
    assert sorted(path.name for path in day.iterdir()) == ["day.json", "out.json"]
    assert (day / "out.json").read_text() == "[]"
    assert json.loads((day / "day.json").read_text()) == SHORT
    assert provider.gone.wait(PATIENCE)


def test_ctrl_c_in_a_session_leaves_its_context_as_it_was_and_it_goes_on(provider, day):
    provider.replies = [SLOW, WHOLE]
    screen = at_terminal(day, arguments(provider, "--session", "s1", "-o", "out.json"), NO_COLOR="1")
    screen.until(b"nothing yet")
    os.kill(screen.process.pid, signal.SIGINT)
    code, _, shown = screen.end()
    assert code == 130
    assert "interrupted: the context is as it was" in shown
    context = elsewhere(day, [*COMMAND, "context", "s1", "--json"])
    assert json.loads(context.stdout)["messages"] == SHORT
    again = elsewhere(day, arguments(provider, "--session", "s1", "--json"))
    assert json.loads(again.stdout)["report"]["summarized_by"].endswith("#some")


def test_a_plan_says_what_would_be_asked_and_what_it_should_cost_without_asking(provider, day):
    ran = elsewhere(day, [*COMMAND, "plan", *arguments(provider, "--json")[len(COMMAND) + 1 :]])
    expected = json.loads(ran.stdout)["report"]["expected"]
    assert ran.returncode == 0
    assert expected["calls"] == 1
    assert expected["cost"] == pytest.approx(
        expected["tokens_shown"] / 1_000_000 + 2 * expected["tokens_written"] / 1_000_000
    )
    assert provider.bodies == []


def test_a_plan_needs_no_key(day):
    env = {name: value for name, value in environment().items() if name != "ANTHROPIC_API_KEY"}
    command = [*COMMAND, "plan", "day.json", "--target", "2000", "--summarizer", "anthropic/claude-haiku-4-5"]
    ran = warm.run(*command[len(COMMAND) :], cwd=day, env=env)
    assert ran.returncode == 0
    assert b"anthropic/claude-haiku-4-5 would be asked 1 times" in ran.stdout
