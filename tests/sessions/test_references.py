"""Whatever a session has lived through, a reference in its context leads to the original it stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from context_compactor.errors import BadSetting, UnknownReference
from context_compactor.sessions.session import Session
from context_compactor.store.sqlite import SqliteStore
from tests.sessions.talk import Raw, illegal, messages, opened, output, references

DIALECTS = ("openai-chat", "openai-responses", "anthropic")
OPERATIONS = ("append", "append", "append", "append", "append", "compact", "compact", "undo", "redo", "restore")
# A line of the record that names an id and the file it is about.
_LINE = re.compile(r'((?:tool|file)_\d{3,})[^\\\n"]{0,40}?src/part_(\d+)\.py')
_LOST = "[no result was recorded]"


def misleading(session: Session) -> list[str]:
    """References that lead to something else than they say."""
    context = session.context()
    said = [(ref, turn) for ref, turn in _LINE.findall(json.dumps(context))]
    said += [(ref, turn) for turn, text in _results(context) if text != output(turn) for ref in references([text])]
    return [f"{ref} of part {turn}" for ref, turn in said if session.recall(ref) not in (output(int(turn)), _LOST)]


def _results(context: list[Raw]) -> Iterator[tuple[int, str]]:
    """The turn and the text of every tool result."""
    for raw in context:
        content = raw.get("content")
        blocks = content if isinstance(content, list) else []
        found = [(raw.get("tool_call_id"), content), (raw.get("call_id"), raw.get("output"))]
        found += [(block.get("tool_use_id"), block.get("content")) for block in blocks]
        yield from ((int(name.split("_")[1]), text) for name, text in found if name and isinstance(text, str))


def live(session: Session, said: list[Raw], dice: Random) -> Iterator[str]:
    """Thirty operations, one after the other; appends may end in the middle of a call."""
    waiting = list(said)
    for _ in range(30):
        operation = dice.choice(OPERATIONS)
        if operation == "append":
            size = dice.randint(1, 5)
            session.append(waiting[:size])
            del waiting[:size]
        elif operation == "compact":
            session.compact(level=dice.choice((None, "soft", "emergency")))
        elif operation == "restore":
            _restore(session, dice)
        else:
            session.undo() if operation == "undo" else session.redo()
        yield operation


def _restore(session: Session, dice: Random) -> None:
    shown = [ref for ref in references(session.context()) if not ref.startswith("turn")]
    try:
        session.restore(dice.choice(shown or ["file_001"]))
    except (BadSetting, UnknownReference):
        return  # there is no room for it, or nothing has been read yet


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("loses", [0.0, 0.15], ids=["whole", "with losses"])
def test_every_reference_leads_to_what_it_says(dialect: str, loses: float):
    for seed in range(4):
        dice = Random(seed)
        said = [raw for raw in messages(0, 90, dialect) if dice.random() >= loses]
        options = {"window": dice.choice((1_500, 3_000)), "max_output_tokens": dice.choice((200, 5_000))}
        with (
            closing(SqliteStore()) as store,
            opened(store, dialect=dialect, automatic=dice.random() < 0.5, **options) as session,
        ):
            for operation in live(session, said, dice):
                assert misleading(session) == [], f"seed {seed}, {operation}"
                assert illegal(session.context(), dialect) == []
            assert session.history() == said[: len(session.history())]


def test_a_result_without_its_call_does_not_shift_the_ids_of_outputs_that_were_cut():
    said = messages(10, 60)  # begins with the result of a call that nobody has seen
    with (
        closing(SqliteStore()) as store,
        opened(store, window=6_000, automatic=False, max_output_tokens=200) as session,
    ):
        for raw in said:
            session.append(raw)
        session.compact(target_tokens=900)
        found = {original.target: session.recall(original.ref) for original in store.originals("run")}
        for turn in range(3, 14):
            assert found[f"src/part_{turn}.py"] == output(turn)
        assert misleading(session) == []
