"""The handoff text: the task and where it stands, then the names to go on with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from context_compactor.errors import BadSetting
from context_compactor.facts.speech import own_words
from context_compactor.flow import Scene, read_scene
from context_compactor.handoff.notes import choose_notes, plain_lines, take_notes
from context_compactor.handoff.sections import fact_lines
from context_compactor.handoff.worth import handles, is_enough, names_worth
from context_compactor.measure.count import MessageCounter, message_counter_for
from context_compactor.messages.boundaries import repair
from context_compactor.messages.detect import find_dialect
from context_compactor.plan.options import Voice
from context_compactor.plan.view import Spoken, spoken_in

_NOTES = "Names, with words they stood with:"
_MORE = "More names: "
# Of the tokens that are left for names, the share that goes to notes; the rest names as many more as it can.
_NOTED = 0.8


_FEWEST = 100
_LONGEST_PHASE = 80


def handoff_text(
    messages: Sequence[dict[str, Any]], *, tokens: int = 500, phase: str = "", dialect: str = "auto"
) -> str:
    """What the agent of the next phase, or a sub-agent, is given to start with, in at most so many tokens.

    The user's task and rules in the user's words, the state, decisions, failed attempts, changed files, and the names
    that the agent works with, each beside words it stood with. Ids like `turn_001` recall the originals.
    """
    if not is_enough(tokens, _FEWEST):
        raise BadSetting(
            f"handoff: tokens={tokens!r:.40} is no room for a text; {_FEWEST} are the least, 500 a good number"
        )
    phase = " ".join(phase.split())[:_LONGEST_PHASE]
    spoken = find_dialect(dialect, messages)
    legal, _ = repair(spoken.parse(messages), spoken)
    scene = read_scene(legal, spoken)
    counter = message_counter_for(None, spoken.name)
    opening = [f"# Handoff: {phase}" if phase else "# Handoff", *fact_lines(scene.facts, scene.past, tokens)]
    while len(opening) > 1 and counter.text("\n".join(opening)) > tokens:
        opening.pop()
    lines = [*opening, *_name_lines(list(_heard(scene, counter)), "\n".join(opening), tokens, counter)]
    while lines and counter.text("\n".join(lines)) > tokens:
        lines.pop()
    return "\n".join(lines)


def _heard(scene: Scene, counter: MessageCounter) -> Iterator[Spoken]:
    """Every text of the history as its author meant it: the user's without what a client put into it."""
    for excerpt in scene.past.excerpts if scene.past else ():
        content = "\n".join(excerpt.lines)
        yield Spoken(0, Voice.AGENT, content, counter.text(content), 0, 0, 0)
    turns = {turn.number: turn for turn in scene.turns}
    for text in spoken_in(scene.turns, counter):
        if text.voice is Voice.USER:
            yield structs.replace(text, text=own_words(turns[text.turn].messages[text.message]))
        else:
            yield structs.replace(text, text=plain_lines(text))


def _name_lines(heard: Sequence[Spoken], opening: str, tokens: int, counter: MessageCounter) -> Iterator[str]:
    worth = names_worth(heard)
    notes = take_notes(heard)
    room = tokens - counter.text(f"{opening}\n{_NOTES}\n{_MORE}\n")
    costs = counter.counter.count_many([f"{note.text}\n" for note in notes])
    chosen = choose_notes(notes, worth, handles(opening), costs, int(room * _NOTED))
    if chosen:
        yield _NOTES
        yield from (notes[at].text for at in sorted(chosen))
    shown = "\n".join([opening, *(notes[at].text for at in chosen)])
    more = list(_more_names(worth, shown, room - sum(costs[at] for at in chosen), counter))
    if more:
        yield _MORE + " ".join(more)


def _more_names(worth: dict[str, float], shown: str, tokens: int, counter: MessageCounter) -> Iterator[str]:
    for name in sorted(worth, key=lambda name: (-round(worth[name], 2), -len(name), name)):
        if name not in shown:
            tokens -= counter.text(f" {name}")
            if tokens < 0:
                return
            shown = f"{shown} {name}"
            yield name
