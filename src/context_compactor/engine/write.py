"""From choices to texts: the excerpts of the record, and what stands in the place of shortened results and media."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from context_compactor.dialects.messages import Media, ToolResult
from context_compactor.dialects.record import ANSWER, DIGEST, GAP, Excerpt, RecordEntry
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.engine.classify import Verdicts
from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import OUTCOME, Option, TextSource, token_rate
from context_compactor.engine.planner import PlanSelection
from context_compactor.engine.tiers import Tier, TierOverrides, unanswered_turns
from context_compactor.engine.view import PlanningView
from context_compactor.facts.calls import call_body
from context_compactor.facts.failures import failed_mark
from context_compactor.facts.kinds import Kind, Voice
from context_compactor.facts.utterances import own_words
from context_compactor.text import beginning, ending
from context_compactor.tokens.counting import message_bytes


def media_line(media: Media, ref: str) -> str:
    """The line that stands for a picture or document."""
    size = f", {media.width}x{media.height}" if media.width and media.height else ""
    title = f" {media.title!r}" if media.title else ""
    what = f"{media.kind}{title} ({media.media_type or 'unknown type'}{size}, {media.byte_size:,} bytes)"
    return f'[archived {ref}: {what}. recall("{ref}")]'


def turns_without_media(
    turns: Sequence[Turn], zones: dict[int, Zone], most_bytes: int, tier_overrides: TierOverrides
) -> frozenset[int]:
    """The turns that give up their media: all that are shortened, then the oldest until the request is small enough.

    What nobody has answered yet keeps them, and so does what the user wants to keep.
    """
    with_media = [turn for turn in turns if has_media(turn) and not turn.is_fixed]
    cleared = {turn.number for turn in with_media if zones[turn.number] is Zone.PLACED}
    kept = [turn for turn in turns if zones[turn.number] is not Zone.FOLDED and turn.number not in cleared]
    size = sum(message_bytes(message) for turn in kept for message in turn.messages)
    pinned = {*unanswered_turns(turns), *(number for number, tier in tier_overrides.items() if tier is Tier.KEEP)}
    for turn in with_media:
        if size <= most_bytes:
            break
        if zones[turn.number] is Zone.VERBATIM and turn.number not in pinned:
            cleared.add(turn.number)
            size -= sum(map(message_bytes, turn.messages))
    return frozenset(cleared)


def has_media(turn: Turn) -> bool:
    """Whether a turn shows a picture or document."""
    return any(
        isinstance(part, Media) or (isinstance(part, ToolResult) and part.media)
        for message in turn.messages
        for part in message.parts
    )


def media_edits(turn: Turn) -> dict[tuple[int, int], dict[int, str | None]]:
    """The edits that replace every picture and document of a turn, by turn and message, then by part."""
    ref = reference_id("turn", turn.number)
    edits: dict[tuple[int, int], dict[int, str | None]] = {}
    for at, index, _, part in turn.parts():
        if isinstance(part, Media):
            edits.setdefault((turn.number, at), {})[index] = media_line(part, ref)
        elif isinstance(part, ToolResult) and part.media:
            lines = [part.text, *(media_line(media, ref) for media in part.media)]
            edits.setdefault((turn.number, at), {})[index] = "\n".join(filter(None, lines))
    return edits


# Where each line speaks for itself, a gap between two of them says nothing.
_LOOSE = {Kind.SEARCH_RESULT, Kind.LISTING}
# Characters by which a label is told to repeat a line.
_COMPARED = 30
Edits = dict[tuple[int, int], dict[int, str | None]]


class WrittenTexts(Struct, frozen=True):
    """What was written: excerpts and ledger lines for the record, edits for the turns that stay."""

    excerpts: tuple[Excerpt, ...]
    facts: dict[str, list[RecordEntry]]
    edits: Edits


def write_texts(view: PlanningView, draft: PlanSelection) -> WrittenTexts:
    """Write every text of the plan."""
    taken = {number: list(options) for number, options in groupby(draft.chosen(), key=lambda option: option.source)}
    facts: dict[str, list[RecordEntry]] = {}
    folded: list[tuple[TextSource, list[Option]]] = []
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
    return WrittenTexts(tuple(_excerpts(folded, int(view.weights.label))), facts, _marked(edits))


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


def _excerpts(folded: Sequence[tuple[TextSource, list[Option]]], label: int) -> Iterable[Excerpt]:
    """One excerpt for each exchange or text; what was called at once is told call by call.

    Where only a reference is to stay, its line alone.
    """
    groups: dict[tuple[str, int], list[tuple[TextSource, list[Option]]]] = {}
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
        repeats = _repeats_label(source.label, lines)
        named = source.label.partition(" ")[0] if repeats else _short(source.label, label)
        # The id behind which the rest is: a result has its own, the arguments of a call are in its turn.
        is_call = source.voice is Voice.CALL and not source.is_loose
        ref = reference_id("turn", source.turn) if is_call else source.ref
        yield Excerpt(ref, named + _share(source, options), tuple(lines))


def _repeats_label(label: str, lines: Sequence[str]) -> bool:
    """Whether the first line kept is the command that the label names."""
    command = label.partition("`")[2].rstrip("`…")
    return len(command) > 3 and bool(lines) and command[:_COMPARED] in " ".join(lines[0].split())


def _short(label: str, most: int) -> str:
    """A label within its room: of a path the end, of a command the beginning."""
    if len(label) <= most:
        return label
    tool, _, target = label.partition(" ")
    room = max(most - len(tool), 12)
    if target.startswith("`"):
        return f"{tool} {target[:room].rstrip()}…`"
    return f"{tool} …{target[-room:]}" if "/" in target else label[:most].rstrip() + "…"


def _share(source: TextSource, options: Sequence[Option]) -> str:
    if any(option.tier is Tier.SUMMARIZE for option in options):
        return f" · digest/{source.lines}"
    kept = lines_kept(source, options)
    return f" · {kept}/{source.lines}" if kept < source.lines else ""


def lines_kept(source: TextSource, options: Sequence[Option]) -> int:
    """How many lines of the original are kept; a long line of which some pieces are kept counts as one."""
    blocks = [source.blocks[option.block] for option in options if option.block >= 0]
    return len({line for block in blocks for line in range(block.first, block.first + block.lines)})


def chosen_lines(source: TextSource, options: Sequence[Option]) -> list[str]:
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


def _is_one_line(source: TextSource, one: int, other: int) -> bool:
    """Whether two blocks are pieces of one long line."""
    if source.is_loose or one < 0 or other >= len(source.blocks):
        return False
    return source.blocks.first_line(one) == source.blocks.first_line(other)


def _edit(
    view: PlanningView, source: TextSource, options: Sequence[Option], replaced: Option | None, edits: Edits
) -> None:
    if source.voice is Voice.THINKING:
        if replaced is not None and source.is_clearable:
            edits.setdefault((source.turn, source.message), {})[source.part] = None
    elif source.voice is Voice.RESULT and sum(option.block >= 0 for option in options) < len(source.blocks):
        text = shortened(source, options, replaced)
        if len(text) < len(source.text):
            # A failed result begins with its error, whatever else of it is kept.
            failure = view.verdicts.exchanges[source.exchange].failure if source.is_failure else None
            error = f"{failed_mark(failure.error)}\n" if failure else ""
            edits.setdefault((source.turn, source.message), {})[source.part] = error + text


def shortened(source: TextSource, options: Sequence[Option], replaced: Option | None) -> str:
    """What stands in the place of a result that is shortened where it is."""
    if replaced is not None and replaced.text:
        return replaced.text
    if not options:
        return f'[archived {source.ref}: {source.label}, {source.tokens:,} tokens. recall("{source.ref}")]'
    kept = lines_kept(source, options)
    left = max(source.tokens - round(sum(len(option.text) for option in options) * token_rate(source)), 0)
    mark = f'[… {source.lines - kept} of {source.lines} lines left out, {left:,} tokens: recall("{source.ref}")]'
    return "\n".join((*chosen_lines(source, options), mark))


# Of a long text in the newest turns at most this share of their room is shown, its beginning and its end.
_LONG_TEXT_SHARE = 0.4
_CHARACTERS = 3.5


def newest_excerpts(turns: Sequence[Turn], verdicts: Verdicts, tokens: int) -> tuple[Excerpt, ...]:
    """The last of these turns as they were, as many as fit into so many tokens; long texts are cut in their middle."""
    room = int(tokens * _CHARACTERS)
    chosen: list[list[Excerpt]] = []
    for turn in reversed(turns):
        excerpts = [*_turn_excerpts(turn, verdicts, int(room * _LONG_TEXT_SHARE))]
        size = sum(len(line) + 1 for excerpt in excerpts for line in (excerpt.label, *excerpt.lines))
        if size > room:
            break
        room -= size
        chosen.append(excerpts)
    return tuple(excerpt for excerpts in reversed(chosen) for excerpt in excerpts if excerpt.lines)


def _turn_excerpts(turn: Turn, verdicts: Verdicts, longest: int) -> Iterator[Excerpt]:
    ref = reference_id("turn", turn.number)
    for message in turn.messages:
        words = message.text if message.role == "assistant" else own_words(message)
        if words.strip() and message.role in ("user", "assistant"):
            speaker = "agent" if message.role == "assistant" else "user"
            yield Excerpt(ref, speaker, _shown_lines(words, longest))
    for use in turn.exchanges:
        verdict = verdicts.exchanges[use.number]
        if use.call is not None:
            yield Excerpt(ref, f"{verdict.label} · call", _shown_lines(call_body(use.call), longest))
        if use.result is not None:
            yield Excerpt(verdict.ref, f"{verdict.label} · result", _shown_lines(use.result.text, longest))


def _shown_lines(text: str, longest: int) -> tuple[str, ...]:
    text = text.strip("\n")
    if len(text) <= longest:
        return tuple(line for line in text.split("\n") if line.strip())
    head, tail = beginning(text, longest * 2 // 3), ending(text, longest // 3)
    return tuple(line for line in (*head.split("\n"), GAP, *tail.split("\n")) if line.strip())
