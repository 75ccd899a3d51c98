"""The acceptance list of the feature, item by item: each promise holds on the command line, on a server and in the UI.

The name of each test is the item's own sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.acceptance.surfaces import NAME, CommandLine, OverHttp, Raw, Surface, Turn, raws
from tests.acceptance.terminal import InTerminal
from tests.llm.formats import FORMATS
from tests.llm.provider import Provider, Reply
from tests.server.running import running
from tests.summarize.samples import GOOD

TOKENS = re.compile(r"Tokens: ([\d,]+) → ([\d,]+) \(saved ([\d,]+)\)")
DECISION = "we decided to keep the queue in SQLite instead of Redis, because one file is easier to back up"
FILE = "src/queue/outbox_store.py"
PROMPT = "Tell what happened as a ship's log, in at most ten entries. Begin with the word AHOY."
WIRE = FORMATS["openai"]

Configure = Callable[..., None]


@pytest.fixture
def configure(monkeypatch, tmp_path) -> Configure:
    """Settings as users give them to every surface: in the environment. Nothing else is around."""
    monkeypatch.chdir(tmp_path)

    def apply(**settings: object) -> None:
        for name, value in settings.items():
            monkeypatch.setenv(f"COMPACTOR_{name.upper()}", str(value))

    apply(idle_seconds=0, promote_to_memory="false")
    return apply


@pytest.fixture(params=["cli", "server", "tui"])
def begin(request, configure, tmp_path) -> Iterator[Callable[..., Surface]]:
    """Opens the surface with these settings."""
    with ExitStack() as opened:
        yield lambda **settings: _opened(opened, request.param, tmp_path, configure, settings)


def _opened(opened: ExitStack, name: str, folder: Path, configure: Configure, settings: dict[str, object]) -> Surface:
    configure(**settings)
    if name == "cli":
        return CommandLine(folder)
    if name == "server":
        return OverHttp(opened.enter_context(running(folder, workers=1)))
    return opened.enter_context(closing(InTerminal()))


def turns(first: int, last: int, lines: int = 12) -> list[Turn]:
    """Talk of about 240 tokens a turn; no two turns are the same."""
    return [
        (
            f"Request {at}: what does step_{at} in src/steps/step_{at}.py do?",
            "\n".join(f"It adds part_{at}_{line} to the plan of step_{at}, then returns." for line in range(lines)),
        )
        for at in range(first, last)
    ]


def text_of(messages: list[Raw]) -> str:
    return json.dumps(messages, ensure_ascii=False)


def test_compact_command_triggers_manual_compaction(begin):
    surface, said = begin(), turns(0, 20)
    surface.say(*said)
    before = surface.context()
    assert before == raws(said)
    assert "ompacted" in surface.compact()
    assert len(text_of(surface.context())) < 0.7 * len(text_of(before))
    assert surface.history() == raws(said)
    assert [each["trigger"] for each in surface.compactions()] == ["manual"]


def test_auto_compaction_triggers_at_configured_threshold(begin):
    surface = begin(model_auto_compact_token_limit=4_000)
    surface.say(*turns(0, 8))
    assert surface.compactions() == []
    surface.say(*turns(8, 18))
    [made] = surface.compactions()
    assert made["trigger"] == "threshold"
    assert made["tokens_before"] >= 4_000
    assert surface.history() == raws(turns(0, 18))


def test_summary_preserves_key_decisions_and_file_context(begin):
    surface = begin()
    surface.say(
        (f"The outbox loses entries in {FILE}. Find out why.", f"It is written twice in {FILE}, line 40."),
        ("Redis or a file?", f"After measuring both {DECISION}."),
        *turns(0, 24),
    )
    surface.compact()
    surface.compact()
    seen = text_of(surface.context())
    assert FILE in seen
    assert "SQLite instead of Redis" in seen


def test_recent_messages_last_n_preserved_intact(begin):
    surface, said = begin(), turns(0, 24)
    surface.say(*said)
    surface.compact()
    assert surface.context()[-5:] == raws(said)[-5:]


def test_token_count_shown_before_after_compaction(begin):
    surface = begin()
    surface.say(*turns(0, 20))
    shown = TOKENS.search(surface.compact())
    assert shown is not None
    before, after, saved = (int(number.replace(",", "")) for number in shown.groups())
    assert before - after == saved > 0
    [report] = surface.compactions()
    assert (report["tokens_before"], report["tokens_after"]) == (before, after)


def test_compaction_event_emitted_for_ui_update(begin):
    surface = begin()
    surface.say(*turns(0, 20))
    before, after = surface.looked_on()
    [report] = surface.compactions()
    assert f"{report['tokens_before']:,}" in before
    assert f"{report['tokens_after']:,}" in after


def test_configurable_compaction_prompt(begin, provider):
    surface = begin(
        summarizer=f"{provider.url}/v1#some",
        summarizer_window=128_000,
        summarizer_input_tokens=60_000,
        compact_prompt=f"{PROMPT}\n\n{{messages}}",
    )
    surface.say(*turns(0, 24))
    asked = len(provider.bodies)
    surface.compact()
    assert any(PROMPT in text_of(body["messages"]) for body in provider.bodies[asked:])
    [report] = surface.compactions()
    assert [call["model"] for call in report["model_calls"]]


@pytest.mark.parametrize("count", [2, 6])
def test_configurable_preservation_count(begin, count):
    surface, said = begin(preserve_recent_turns=count), turns(0, 24)
    surface.say(*said)
    surface.compact()
    seen = surface.context()
    assert seen[-count:] == raws(said)[-count:]
    assert seen[-count - 1] != raws(said)[-count - 1]


def test_compaction_history_tracked_in_session_metadata(begin):
    surface = begin()
    surface.say(*turns(0, 20))
    surface.compact()
    surface.say(*turns(20, 36))
    surface.compact()
    first, second = surface.compactions()
    assert first["created_at"] <= second["created_at"]
    assert first["session_id"] == second["session_id"] == NAME
    shown = surface.shown_compactions()
    for report in (first, second):
        assert report["compaction_id"] in shown
        assert f"{report['tokens_before']:,}" in shown
        assert f"{report['tokens_after']:,}" in shown


def test_graceful_handling_when_conversation_too_short(begin):
    surface, said = begin(), [("Hello.", "Hello, what can I do?")]
    surface.say(*said)
    found = surface.compact()
    assert re.search(r"No compaction needed: \S+ \S+", found), found
    assert surface.context() == surface.history() == raws(said)
    assert surface.compactions() == []


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A model that tells a good story, whoever asks."""
    serving = Provider()
    serving.replies = [Reply(pieces=[*WIRE.text(GOOD), *WIRE.end()])]
    yield serving
    serving.close()
