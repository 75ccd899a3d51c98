"""The context follows from the log: whatever was compacted, undone, redone and revised, in whatever order.

A plain model does to lists what the log only notes, and both must show the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.sessions.log import (
    COMPACTION,
    REDO,
    REVISION,
    UNDO,
    CompactionNote,
    ContextItem,
    Revision,
    UndoNote,
    context_items,
    read_log_state,
)
from context_compactor.store.rows import MESSAGE, LogEntry

AT = "2026-03-01T10:00:00.000+00:00"


@dataclass
class Log:
    """A log in memory, with the items of its compactions."""

    entries: list[LogEntry] = field(default_factory=list)
    items: dict[str, list[ContextItem]] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return len(self.entries)

    def add(self, kind: str, body: bytes = b"", name: str = "") -> None:
        self.entries.append(LogEntry(self.head + 1, kind, AT, name, body))

    def context(self) -> list[ContextItem]:
        """What follows from it."""
        log_state = read_log_state(entry for entry in self.entries if entry.kind != MESSAGE)
        items = self.items[log_state.last.note.items] if log_state.last else []
        return context_items(log_state, items, [entry for entry in self.entries if entry.position > log_state.base])


@dataclass
class View:
    """One context of the model: its messages, and the position up to which a compaction stands for the log."""

    shown: list[ContextItem] = field(default_factory=list)
    base: int = 0
    items: int = 0
    under: int = 0

    def hashes(self) -> list[str]:
        return [each.hash for each in self.shown]


class Model:
    """The contexts that can be reached by undo and redo, each kept as a list."""

    def __init__(self) -> None:
        self.log = Log()
        self.now = View()
        self.past: list[View] = []
        self.future: list[View] = []

    def views(self) -> Iterable[View]:
        return (self.now, *self.past, *self.future)

    def say(self, text: str) -> None:
        """A message is behind every context, whichever counts."""
        self.log.add(MESSAGE, name=text)
        for view in self.views():
            view.shown.append(ContextItem(text, self.log.head))

    def compact(self, dice: Random, late: list[str]) -> None:
        """Some messages go, some stay, a record stands for the rest; what came meanwhile stays behind it."""
        base, made_from = self.log.head, list(self.now.shown)
        for text in late:
            self.say(text)
        kept = [each for each in made_from if (not each.added or each.added == "memory") and dice.random() < 0.5]
        items = [ContextItem(f"record {base}"), *kept]
        name = f"items {self.log.head}"
        self.log.items[name] = items
        note = CompactionNote(id=f"c{self.log.head}", base=base, view=0, items=name, report="")
        self.log.add(COMPACTION, msgspec.json.encode(note))
        self.past.append(self.now)
        behind = [each for each in self.now.shown if each.position > base]
        self.now = View([*items, *behind], base, len(items), self.log.head)
        self.future.clear()

    def undo(self) -> None:
        self.log.add(UNDO, msgspec.json.encode(UndoNote("")))
        if self.past:
            self.future.append(self.now)
            self.now = self.past.pop()

    def redo(self) -> None:
        self.log.add(REDO, msgspec.json.encode(UndoNote("")))
        if self.future:
            self.past.append(self.now)
            self.now = self.future.pop()

    def revise(self, dice: Random) -> None:
        """One message is shown as another text from now on: one of the log by its place, and so in every context that
        has it there; any other by what it was, and so under this compaction alone."""
        own = [each for each in self.now.shown if not each.added]
        if not own:
            return
        old, new = dice.choice(own), f"revised {self.log.head}"
        position = old.position if old.position > self.now.base else 0
        instead = "" if position else old.hash
        revision = Revision(why="r", hash=new, position=position, instead_of=instead, under=self.now.under, ref="ref")
        self.log.add(REVISION, msgspec.json.encode(revision))
        for view in self.views() if position else (self.now,):
            for at, each in enumerate(view.shown):
                if each.hash == instead or (each.position == position > view.base):
                    view.shown[at] = ContextItem(new, each.position, "", "ref")
                    break

    def put_back(self) -> None:
        """An original stands behind everything that is in the context now, and in no other."""
        after = self.log.head
        text = f"restored {after}"
        revision = Revision(why="restored", hash=text, after=after, under=self.now.under, ref="ref")
        self.log.add(REVISION, msgspec.json.encode(revision))
        self.now.shown.append(ContextItem(text, 0, "restored", "ref"))


def step(model: Model, number: int) -> None:
    """One thing that happens, chosen by a number."""
    dice = Random(number)
    texts = [f"message {model.log.head}.{more}" for more in range(dice.randint(1, 3))]
    kind = number % 12
    if kind < 4:
        for text in texts:
            model.say(text)
    elif kind < 6:
        model.compact(dice, texts if dice.random() < 0.4 else [])
    else:
        doings = (model.undo, model.redo, lambda: model.revise(dice), model.undo, model.put_back, model.redo)
        doings[kind - 6]()


@given(st.lists(st.integers(0, 10**6), max_size=40))
def test_the_context_is_what_a_model_that_keeps_every_list_has(numbers: list[int]):
    model = Model()
    for number in numbers:
        step(model, number)
        assert [each.hash for each in model.log.context()] == model.now.hashes()


def test_long_random_lives_too():
    for seed in range(150):
        dice, model = Random(seed), Model()
        for _ in range(60):
            step(model, dice.randrange(10**6))
        assert [each.hash for each in model.log.context()] == model.now.hashes(), f"seed {seed}"


# The rules one by one


def filled(*texts: str) -> Model:
    model = Model()
    for text in texts:
        model.say(text)
    return model


def test_without_a_compaction_the_context_is_what_was_said():
    assert [each.hash for each in filled("a", "b").log.context()] == ["a", "b"]


def test_a_compaction_stands_for_everything_up_to_its_base_and_for_nothing_behind_it():
    model = filled("a", "b")
    model.compact(Random(1), late=["c", "d"])
    model.say("e")
    hashes = [each.hash for each in model.log.context()]
    assert hashes[0] == "record 2"
    assert hashes[-3:] == ["c", "d", "e"]


def test_undo_goes_back_one_compaction_at_a_time_and_redo_forward():
    model = filled("a", "b")
    seen = [model.log.context()]
    for _ in range(3):
        model.compact(Random(2), late=[])
        seen.append(model.log.context())
    for wanted in (seen[2], seen[1], seen[0], seen[0]):
        model.undo()
        assert model.log.context() == wanted
    for wanted in (seen[1], seen[2], seen[3], seen[3]):
        model.redo()
        assert model.log.context() == wanted


def test_after_a_new_compaction_there_is_nothing_to_redo():
    model = filled("a", "b")
    model.compact(Random(3), late=[])
    model.undo()
    model.compact(Random(4), late=[])
    now = model.log.context()
    model.redo()
    assert model.log.context() == now


def test_undo_and_redo_of_nothing_change_nothing():
    model = filled("a")
    model.undo()
    model.redo()
    assert [each.hash for each in model.log.context()] == ["a"]


def test_a_message_that_a_compaction_kept_can_still_be_revised():
    log = Log()
    log.add(MESSAGE, name="cut")
    log.items["items"] = [ContextItem("record"), ContextItem("cut", 1, "", "tool_001")]
    note = CompactionNote(id="c", base=1, view=0, items="items", report="")
    log.add(COMPACTION, msgspec.json.encode(note))
    log.add(REVISION, msgspec.json.encode(Revision(why="restored", hash="whole", instead_of="cut", under=2)))
    assert [each.hash for each in log.context()] == ["record", "whole"]


def test_what_was_put_back_stays_until_the_next_compaction():
    model = filled("a", "b")
    model.put_back()
    model.say("c")
    assert [each.hash for each in model.log.context()] == ["a", "b", "restored 2", "c"]
    model.compact(Random(5), late=[])
    assert "restored 2" not in [each.hash for each in model.log.context()]
    model.undo()
    assert [each.hash for each in model.log.context()] == ["a", "b", "restored 2", "c"]


def test_what_is_remembered_stands_behind_the_instructions_it_was_put_behind():
    log = Log()
    log.add(MESSAGE, name="instructions")
    log.add(MESSAGE, name="question")
    log.add(REVISION, msgspec.json.encode(Revision(why="memory", hash="memory", after=1)))
    assert [each.hash for each in log.context()] == ["instructions", "memory", "question"]
    assert replace(log).context() == log.context()
