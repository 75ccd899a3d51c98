"""From choices to texts: the record's excerpts, and what stands in the place of shortened parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from context_compactor.apply.media import media_edits
from context_compactor.classify.failures import failed_mark
from context_compactor.classify.kinds import Kind, Voice
from context_compactor.classify.tier import Tier
from context_compactor.messages.record import ANSWER, DIGEST, GAP, Entry, Excerpt
from context_compactor.messages.references import reference_id
from context_compactor.plan.options import OUTCOME, Option, Source, token_rate
from context_compactor.plan.planner import Draft
from context_compactor.plan.view import View
from context_compactor.plan.zones import Zone

# Where each line speaks for itself, a gap between two of them says nothing.
_LOOSE = {Kind.SEARCH_RESULT, Kind.LISTING}
# Characters by which a label is told to repeat a line.
_COMPARED = 30
Edits = dict[tuple[int, int], dict[int, str | None]]


class Texts(Struct, frozen=True):
    """What was written: excerpts and ledger lines for the record, edits for the turns that stay."""

    excerpts: tuple[Excerpt, ...]
    facts: dict[str, list[Entry]]
    edits: Edits


def write_texts(view: View, draft: Draft) -> Texts:
    """Write every text of the plan."""
    taken = {number: list(options) for number, options in groupby(draft.chosen(), key=lambda option: option.source)}
    facts: dict[str, list[Entry]] = {}
    folded: list[tuple[Source, list[Option]]] = []
    edits: Edits = {}
    for turn in view.turns:
        if turn.number in view.without_media:
            edits.update(media_edits(turn))
    for source in view.sources:
        options = taken.get(source.number, [])
        if source.voice is Voice.FACT:
            if options:
                facts.setdefault(source.label, []).extend(source.entries[option.block] for option in options)
        elif view.zone_of(source) is Zone.FOLDED:
            replaced = draft.replaced.get(source.number)
            if replaced is not None and replaced.is_all and replaced.text:
                options = [replaced]
            if options:
                folded.append((source, options))
        elif view.zone_of(source) is Zone.PLACED:
            _edit(view, source, options, draft.replaced.get(source.number), edits)
    return Texts(tuple(_excerpts(folded, int(view.weights.label))), facts, _marked(edits))


def _marked(edits: Edits) -> Edits:
    """Thinking is cleared only where the turn shows that it was shortened: every change leaves a visible reference."""
    shown = {turn: place for place in edits for turn in place[:1] if any(edits[place].values())}
    cleared = {turn for (turn, _), changes in edits.items() if None in changes.values()}
    for turn in cleared & shown.keys():
        changes = edits[shown[turn]]
        part = max(part for part, text in changes.items() if text)
        ref = reference_id("turn", turn)
        changes[part] = f'{changes[part]}\n[reasoning left out: recall("{ref}")]'
    return {place: changes for place, changes in edits.items() if place[0] in shown}


def _excerpts(folded: Sequence[tuple[Source, list[Option]]], label: int) -> Iterable[Excerpt]:
    """One excerpt for each exchange or text; what was called at once is told call by call.

    Where only a reference is to stay, its line alone.
    """
    groups: dict[tuple[str, int], list[tuple[Source, list[Option]]]] = {}
    for source, options in folded:
        groups.setdefault((source.ref, source.turn), []).append((source, options))
    for pairs in groups.values():
        lines: list[str] = []
        source, options = pairs[0]
        if options[0].is_all:
            yield Excerpt(reference_id("turn", source.turn), options[0].text, ())
            continue
        for source, options in pairs:
            if source.voice is Voice.RESULT and lines:
                lines.append(ANSWER)
            lines.extend(line for line in chosen_lines(source, options) if line.strip() and line != source.label)
        source, options = pairs[-1]
        named = _tool_only(source.label) if _says_again(source.label, lines) else _short(source.label, label)
        yield Excerpt(_home(source), named + _share(source, options), tuple(lines))


def _home(source: Source) -> str:
    """The id behind which the rest is: a result has its own, the arguments of a call are in its turn."""
    is_call = source.voice is Voice.CALL and not source.is_loose
    return reference_id("turn", source.turn) if is_call else source.ref


def _says_again(label: str, lines: Sequence[str]) -> bool:
    """Whether the first line kept is the command that the label names."""
    command = label.partition("`")[2].rstrip("`…")
    return len(command) > 3 and bool(lines) and command[:_COMPARED] in " ".join(lines[0].split())


def _tool_only(label: str) -> str:
    return label.partition(" ")[0]


def _short(label: str, most: int) -> str:
    """A label within its room: of a path the end, of a command the beginning."""
    if len(label) <= most:
        return label
    tool, _, target = label.partition(" ")
    room = max(most - len(tool), 12)
    if target.startswith("`"):
        return f"{tool} {target[:room].rstrip()}…`"
    return f"{tool} …{target[-room:]}" if "/" in target else label[:most].rstrip() + "…"


def _share(source: Source, options: Sequence[Option]) -> str:
    if any(option.tier is Tier.SUMMARIZE for option in options):
        return f" · digest/{source.lines}"
    kept = lines_kept(source, options)
    return f" · {kept}/{source.lines}" if kept < source.lines else ""


def lines_kept(source: Source, options: Sequence[Option]) -> int:
    """How many lines of the original are kept; a long line of which some pieces are kept counts as one."""
    blocks = [source.blocks[option.block] for option in options if option.block >= 0]
    return len({line for block in blocks for line in range(block.first, block.first + block.lines)})


def chosen_lines(source: Source, options: Sequence[Option]) -> list[str]:
    """The lines of the chosen options in order, with a mark where lines were left out between them."""
    lines: list[str] = []
    last = -1
    chosen = {option.block for option in options}
    is_open = True
    for option in options:
        at = option.block
        if at == OUTCOME:
            lines.append(option.text)
            continue
        if at < 0:
            lines.extend((DIGEST, *option.text.rstrip("\n").split("\n")))
            is_open = False
            continue
        goes_on = _is_one_line(source, at - 1, at)
        if goes_on and last == at - 1:
            lines[-1] += option.text
        else:
            if (at > last + 1 and last >= 0 and source.kind not in _LOOSE) or (not is_open and last < 0):
                lines.append(GAP)
            lines.extend((GAP + option.text if goes_on else option.text).rstrip("\n").split("\n"))
        if _is_one_line(source, at, at + 1) and at + 1 not in chosen:
            lines[-1] = lines[-1].rstrip() + GAP
        last = at
    return lines


def _is_one_line(source: Source, one: int, other: int) -> bool:
    """Whether two blocks are pieces of one long line."""
    if source.is_loose or one < 0 or other >= len(source.blocks):
        return False
    return source.blocks[one].first == source.blocks[other].first


def _edit(view: View, source: Source, options: Sequence[Option], replaced: Option | None, edits: Edits) -> None:
    if source.voice is Voice.THINKING:
        if replaced is not None and source.is_clearable:
            edits.setdefault((source.turn, source.message), {})[source.part] = None
    elif source.voice is Voice.RESULT and not _is_whole(source, options):
        text = shortened(source, options, replaced)
        if len(text) < len(source.text):
            place = edits.setdefault((source.turn, source.message), {})
            place[source.part] = _error_first(view, source) + text


def _is_whole(source: Source, options: Sequence[Option]) -> bool:
    return sum(option.block >= 0 for option in options) == len(source.blocks)


def _error_first(view: View, source: Source) -> str:
    """A failed result begins with its error, whatever else of it is kept."""
    failure = view.verdicts.exchanges[source.exchange].failure if source.is_failure else None
    return f"{failed_mark(failure.error)}\n" if failure else ""


def shortened(source: Source, options: Sequence[Option], replaced: Option | None) -> str:
    """What stands in the place of a result that is shortened where it is."""
    if replaced is not None and replaced.text:
        return replaced.text
    if not options:
        return reference_line(source)
    kept = lines_kept(source, options)
    left = max(source.tokens - round(sum(len(option.text) for option in options) * token_rate(source)), 0)
    mark = f'[… {source.lines - kept} of {source.lines} lines left out, {left:,} tokens: recall("{source.ref}")]'
    return "\n".join((*chosen_lines(source, options), mark))


def reference_line(source: Source) -> str:
    """The one line that stands for an archived original."""
    return f'[archived {source.ref}: {source.label}, {source.tokens:,} tokens. recall("{source.ref}")]'
