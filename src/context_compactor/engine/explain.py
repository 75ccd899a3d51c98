"""Explains the choices of a compaction, target by target, in words a user understands."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import groupby
from math import inf

from msgspec import structs

from context_compactor.dialects.messages import Thinking
from context_compactor.dialects.turns import Turn, reference_id
from context_compactor.engine.apply import Composer
from context_compactor.engine.layouts import Zone
from context_compactor.engine.options import Option, TextSource, token_rate
from context_compactor.engine.plan import Decision
from context_compactor.engine.planner import PlanSelection
from context_compactor.engine.story import StoryShare
from context_compactor.engine.tiers import Tier, pinned_turns
from context_compactor.engine.truncation import INSTRUCTIONS
from context_compactor.engine.view import PlanningView
from context_compactor.engine.write import lines_kept, shortened
from context_compactor.facts.kinds import Kind, Voice
from context_compactor.text import clip, plural

_STORY_VOICES = {Voice.USER: "user", Voice.AGENT: "agent", Voice.CALL: "step"}
_LESS = "worth less here than what was kept"
# The least that was chosen, without the few that were taken since something better did not fit any more.
_BORDER = 0.05
# A text of which so much is told, and no sentence left out, is kept: the rest is line breaks and emphasis.
_NEARLY_ALL = 0.7


def explain_decisions(
    composer: Composer, cut: Mapping[int, int], detached: Container[int] = ()
) -> tuple[Decision, ...]:
    """One decision for each turn that stays as it is, and one for each text of the others.

    `cut` has the tokens that shortened instructions and an open question had before, by turn; `detached` are turns that
    stay without their reasoning.
    """
    view, draft, turn_tokens = composer.view, composer.draft, composer.turn_tokens
    taken = {number: list(options) for number, options in groupby(draft.chosen(), key=lambda option: option.source)}
    decisions = [*_kept_turns(view, turn_tokens, cut), *_detached(composer, detached)]
    shares, story_border = composer.story.shares(), _border(composer.story.gains())
    worth = relevances(draft)
    for source in view.open_sources():
        if not source.is_loose:
            folded = view.zone_of(source) is Zone.FOLDED
            options, replaced = taken.get(source.number, []), draft.replaced.get(source.number)
            decision = _decide(source, options, replaced, folded, view.why.get(source.turn, ""))
            relevance = worth.get(source.number, 0.0)
            if folded and not view.why.get(source.turn):
                share = shares.get((source.turn, _STORY_VOICES.get(source.voice, "")), StoryShare())
                decision = _with_story(decision, source, share)
                relevance = max(relevance, _relevance(share.gain, story_border))
            decisions.append(structs.replace(decision, relevance=relevance))
    return tuple(sorted(decisions, key=lambda decision: decision.turn))


def relevances(draft: PlanSelection) -> dict[int, float]:
    """The relevance of each source that was weighed, by its number: what its best piece adds for a token.

    It is told beside the least that was chosen, which is 0.5.
    """
    chooser = draft.chooser
    gains = chooser.gains()
    best: dict[int, float] = {}
    for source, gain in zip(chooser.pieces.sources, gains, strict=True):
        best[source] = max(best.get(source, 0.0), gain)
    border = _border([gains[at] for at in chooser.chosen]) or max(best.values(), default=0.0)
    return {source: _relevance(gain, border) for source, gain in best.items()}


def _border(taken: Sequence[float]) -> float:
    return sorted(taken)[int(len(taken) * _BORDER)] if taken else 0.0


def _relevance(gain: float, border: float) -> float:
    if gain == inf:
        return 1.0
    return round(gain / (gain + border), 2) if gain > 0 and border > 0 else 0.0


def _with_story(decision: Decision, source: TextSource, share: StoryShare) -> Decision:
    """A decision on a text of which the record tells something, in sentences or as a step with its outcome."""
    if not share.chosen:
        return decision
    if share.chosen == share.units and source.voice is not Voice.CALL and share.tokens >= _NEARLY_ALL * source.tokens:
        return structs.replace(
            decision,
            tier=Tier.KEEP,
            reason="in the record, word for word",
            tokens_after=source.tokens,
            strategy="story",
        )
    how = (
        f"in the record ({share.chosen:,} of {plural(share.units, 'sentence')})"
        if source.voice is not Voice.CALL
        else "in the record as a step"
    )
    kept = decision.tokens_after if decision.tier is Tier.SUMMARIZE else 0
    reason = f"{how}; {decision.reason}" if kept else how
    after = min(source.tokens, kept + round(share.tokens))
    strategy = decision.strategy if kept else "story"
    return structs.replace(decision, tier=Tier.SUMMARIZE, reason=reason, tokens_after=after, strategy=strategy)


def keep_all_decisions(
    turns: Sequence[Turn], turn_tokens: Mapping[int, int], why: Mapping[int, str]
) -> tuple[Decision, ...]:
    """The decisions where nothing is to be done: every turn stays as it is."""
    pins = pinned_turns(turns)
    reasons = {turn.number: why.get(turn.number) or pins.get(turn.number, "nothing has to go") for turn in turns}
    return tuple(_kept(turn, turn_tokens[turn.number], reasons[turn.number]) for turn in turns)


def _kept(turn: Turn, tokens: int, reason: str) -> Decision:
    ref = reference_id("turn", turn.number) if turn.number > 0 else ""
    return Decision(turn_label(turn), turn.number, Kind.TALK, Tier.KEEP, "pin", reason, tokens, tokens, ref)


def _detached(composer: Composer, detached: Container[int]) -> Iterator[Decision]:
    for turn in composer.view.turns:
        tokens = sum(
            weight
            for message in turn.messages
            for part, weight in zip(message.parts, composer.counter.part_tokens(message), strict=True)
            if isinstance(part, Thinking)
        )
        if turn.number in detached and tokens:
            reason = "the provider accepts no reasoning behind a message that has changed"
            target, ref = f"reasoning of turn {turn.number}", reference_id("turn", turn.number)
            yield Decision(target, turn.number, Kind.TALK, Tier.DROP, "provider rules", reason, tokens, 0, ref)


def _kept_turns(view: PlanningView, turn_tokens: dict[int, int], cut: Mapping[int, int]) -> Iterator[Decision]:
    pins = pinned_turns(view.turns)
    for turn in view.turns:
        tokens, zone = turn_tokens[turn.number], view.zones[turn.number]
        if turn.number in cut and zone is not Zone.FOLDED:
            yield _shortened_before(turn, cut[turn.number], tokens)
        elif zone in (Zone.FIXED, Zone.VERBATIM):
            reason = view.why.get(turn.number) or pins.get(turn.number, "one of the newest turns")
            yield _kept(turn, tokens, reason)


def _shortened_before(turn: Turn, before: int, after: int) -> Decision:
    """Instructions, or what was pasted into the open question: shortened before anything was planned."""
    what = "instructions that leave" if turn.is_instruction else "what was pasted into it would leave"
    return Decision(
        target=turn_label(turn),
        turn=turn.number,
        kind=Kind.TALK,
        tier=Tier.SUMMARIZE,
        strategy="fit instructions" if turn.is_instruction else "fit the open question",
        reason=f"{what} no room within the target{' that was asked for' if turn.is_instruction else ''}",
        tokens_before=before,
        tokens_after=after,
        ref=INSTRUCTIONS if turn.is_instruction else reference_id("turn", turn.number),
    )


def turn_label(turn: Turn) -> str:
    """A turn in a few words."""
    words = " ".join(turn.messages[0].text.split())
    calls = ", ".join(exchange.call.name for exchange in turn.exchanges if exchange.call)
    said = f"{turn.role}: {words}" if words else f"{turn.role}: {calls}"
    return clip(said, 80, strip=False)


def _decide(source: TextSource, options: Sequence[Option], replaced: Option | None, folded: bool, why: str) -> Decision:
    tier, option = _tier_and_option(source, options, replaced, folded)
    after = source.tokens
    if tier is not Tier.KEEP:
        after = min(after, round(sum(len(option.text) for option in options) * token_rate(source)))
    return Decision(
        target=_target(source),
        turn=source.turn,
        kind=source.kind,
        tier=tier,
        strategy=option.strategy if option else "fold the oldest turns",
        reason=_reason(source, options, option, folded, why),
        tokens_before=source.tokens,
        tokens_after=after,
        ref=source.ref,
    )


def _tier_and_option(
    source: TextSource, options: Sequence[Option], replaced: Option | None, folded: bool
) -> tuple[Tier, Option | None]:
    if not folded and source.voice is Voice.RESULT and len(shortened(source, options, replaced)) >= len(source.text):
        return Tier.KEEP, None
    if options:
        whole = sum(option.block >= 0 for option in options) == len(source.blocks)
        return (Tier.KEEP if whole else Tier.SUMMARIZE), options[0]
    if replaced is not None:
        return replaced.tier, replaced
    return Tier.REFERENCE, None


def _reason(source: TextSource, options: Sequence[Option], option: Option | None, folded: bool, why: str) -> str:
    if option is None and not folded:
        return "too short to gain anything"
    if option is None:
        return why or f"its original is archived; {_LESS}"
    kept = lines_kept(source, options)
    share = f" ({kept} of {source.lines} lines)" if options and kept < source.lines else ""
    where = ", in the record" if options and folded else ""
    less = f"; {_LESS}" if not options and option.tier is Tier.REFERENCE and not why else ""
    return f"{why or option.reason}{share}{where}{less}"


def _target(source: TextSource) -> str:
    if source.voice in (Voice.USER, Voice.AGENT, Voice.SYSTEM, Voice.THINKING):
        words = " ".join(source.text[:200].split())[:60]
        return f"{source.voice.value}: {words}"
    return source.label if source.voice is Voice.RESULT else f"{source.label} (arguments)"
