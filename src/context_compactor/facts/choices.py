"""What the user chose or agreed to, in the words of the agent that had asked: "1" and "yes" say nothing alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import Saying, sentences, without_code
from context_compactor.messages.references import reference_id

_LONGEST_REPLY = 300
_LONGEST_QUOTE = 100
_LONGEST = 320
_LONGEST_OPTION = 200
_MOST_OPTIONS = 4
_LAST_TEXT = 6_000
_LAST_SENTENCES = 1_500
_OPTION = re.compile(
    r"^[ \t]*(?:[-*+][ \t]+)?(?:#{1,4}[ \t]+)?\**(?:(?:option|approach|choice|variant|plan)[ \t]+)?([1-9]|[A-E])\**"
    r"[ \t]?[.):\u2013\u2014-]+\**[ \t]+(\S[^\n]*)$|^\|[ \t]*\**#?([1-9]|[A-E])\**[ \t]*\|[ \t]*([^|\n]+)"
    r"|#([1-9]) \(([^()\n]+)\)",
    re.MULTILINE | re.IGNORECASE,
)
_NAMED = re.compile(
    r"\b(?:option|approach|choice|variant|number)s? #?([1-9a-e])\b(?:,? (?:and|&|\+) #?([1-9a-e])\b)?", re.I
)
_LEADING = re.compile(r"^\W{0,2}([1-9])(?:(?:,| and|,? &) ([1-9]))?(?=\W|$)(?!\.\d)")
_NUMBERED = re.compile(r"(?:^|\n)[ \t]*[1-9][.)] |\s[2-9][.)] ")
_ORDINALS = {"first": 0, "former": 0, "second": 1, "third": 2, "fourth": 3, "last": -1, "latter": -1}
_PICKING = cues.ACKNOWLEDGEMENTS | frozenset(
    "let's lets with i'd i'll i we take pick choose use try tackle start first like prefer think would want can just "
    "approach options choice number plan".split()
)
_EVERYTHING = frozenset("both all everything".split())
_AGREEING = frozenset(
    "yes yeah yep yup y ok okay sure please lgtm go do sounds perfect great good absolutely definitely agreed approved "
    "correct exactly right fine let's lets works ja oui sí si sim да 好 好的 是 是的 可以 はい 네".split()
)
_AGREEMENT = (
    _AGREEING
    | cues.ACKNOWLEDGEMENTS
    | frozenset(
        "it that this to implement try give make the change changes fix i we should think so can works for me is fine "
        "love it's with them both too then also start looks like".split()
    )
)
_REFUSING = frozenset("no nope not don't dont nein non нет but instead wait stop".split())
# A question that needs the sentence before it to be understood.
_BARE = frozenset(
    "want me to should i shall would you like do make this that it these them change changes go ahead proceed "
    "implement fix the a an start there with and now here does feel right or look sound good we is update apply write "
    "up in all".split()
)
_OPEN_QUESTIONS = frozenset("which what how where who when why".split())
_SMALL = re.compile(
    r"\b(?:want me to|should i|shall i|like me to|ready to|want to)(?: also| now| just| go ahead and| first)* "
    r"(?:commit|push|run|check|look|continue|show|explain|verify|investigate|explore|dig|see|discuss|re-?run|wait)\b",
    re.IGNORECASE,
)


def choice_facts(user: Sequence[Saying], agent: Sequence[Saying]) -> list[Fact]:
    """Decisions the user made by a short reply: the option that was picked, or the proposal that was agreed to."""
    spoken = [saying.turn for saying in agent]
    found: list[Fact] = []
    for reply in user:
        at = bisect_left(spoken, reply.turn) - 1
        if at < 0 or len(reply.text) > _LONGEST_REPLY:
            continue
        asked = agent[at].text[-_LAST_TEXT:]
        said = " ".join(reply.text.split())
        quote = said if len(said) <= _LONGEST_QUOTE else f"{said[: _LONGEST_QUOTE - 1].rstrip()}\u2026"
        chosen = _chosen(reply.text, asked)
        agreed = _proposal(asked) if not chosen and _agrees(reply.text) else ""
        detail = f'user chose: "{quote}"' if chosen else f'user agreed: "{quote}"'
        ref = reference_id("turn", reply.turn)
        found += [
            Fact("decision", content, reply.turn, "assistant", detail, "", 1, reply.turn, ref)
            for content in filter(None, (*chosen, agreed))
        ]
    return found


def answered_by(reply: str, asked: str) -> str:
    """What a short reply answers: the options that it names, else the last question before it, else the last words."""
    said = list(sentences(without_code(asked)[-_LAST_SENTENCES:]))
    chosen = _chosen(reply, asked[-_LAST_TEXT:])
    if chosen or not said:
        return "; ".join(chosen)
    at = next((at for at in range(len(said) - 1, -1, -1) if said[at].rstrip("*_ ").endswith("?")), len(said) - 1)
    return _plain(with_context(said, at), _LONGEST_OPTION)


def _chosen(reply: str, asked: str) -> list[str]:
    """The options that a reply names, as the agent worded them."""
    words = cues.spaced(reply).split()
    if not words or len(_NUMBERED.findall(reply)) > 1:
        return []
    options = _options(asked) if _may_pick(words) else {}
    if len(options) < 2:
        return []
    return [options[key] for key in _keys(reply, words, list(options)) if key in options][:_MOST_OPTIONS]


def _may_pick(words: Sequence[str]) -> bool:
    return any(len(word) == 1 or word in _ORDINALS or word in _EVERYTHING for word in words)


def _keys(reply: str, words: Sequence[str], known: list[str]) -> list[str]:
    named = [key.upper() for match in _NAMED.findall(reply) for key in match if key]
    if named:
        return named
    if set(words) <= _PICKING | _EVERYTHING | {"of", "them", "three", "four", "3", "4"} and _EVERYTHING & set(words):
        return known
    keys = [word.upper() for word in words if word.upper() in known and (word.isdigit() or len(words) < 4)]
    if keys and all(word in _PICKING or word.upper() in known for word in words):
        return keys
    ordinal = next((_ORDINALS[word] for word in words if word in _ORDINALS), None)
    if ordinal is not None and len(words) <= 8 and ("one" in words or "option" in words or len(words) <= 3):
        return known[ordinal : ordinal + 1] if ordinal >= 0 else known[-1:]
    leading = _LEADING.match(reply)
    return [key for key in leading.groups() if key] if leading else []


def _options(asked: str) -> dict[str, str]:
    """The last list of options in a text, by number or letter."""
    found: dict[str, str] = {}
    for match in _OPTION.findall(without_code(asked)):
        key, text = next((match[at], match[at + 1]) for at in (0, 2, 4) if match[at])
        if key in ("1", "A", "a"):
            found = {}
        found[key.upper()] = _plain(text, _LONGEST_OPTION)
    return found


def _agrees(reply: str) -> bool:
    words = cues.spaced(reply).split()
    if not words or words[0] not in _AGREEING or not _REFUSING.isdisjoint(words):
        return False
    # Behind a clear yes more may follow; other words agree only when nothing else is said.
    return words[0] in ("yes", "yeah", "yep", "yup") or all(word in _AGREEMENT for word in words)


def _proposal(asked: str) -> str:
    """What a text proposes last: its question, with the advice before it where the question only points to it."""
    said = list(sentences(asked[-_LAST_SENTENCES:]))
    if not said:
        return ""
    words = [cues.spaced(sentence) for sentence in said]
    at = next(
        (at for at in range(len(said) - 1, max(-1, len(said) - 8), -1)
         if said[at].rstrip("*_ ").endswith("?") and cues.has_any(words[at], cues.PROPOSALS)),
        None,
    )  # fmt: skip
    if at is None:
        advice = [at for at in range(len(said)) if cues.has_any(words[at], cues.ADVICE[:10])]
        return _plain(said[advice[-1]], _LONGEST) if advice else ""
    if _SMALL.search(said[at]) or words[at].split(maxsplit=1)[0] in _OPEN_QUESTIONS:
        return ""
    is_alone = at == 0 and len(set(words[at].split()) - _BARE) <= 1
    return "" if is_alone else _plain(with_context(said, at), _LONGEST)


def with_context(said: Sequence[str], at: int) -> str:
    """A question, with the advice or the sentence before it where it only points back ("Want me to do that?")."""
    if at == 0 or len(set(cues.spaced(said[at]).split()) - _BARE) > 1:
        return said[at]
    before = [each for each in range(max(0, at - 6), at) if cues.has_any(cues.spaced(said[each]), cues.ADVICE)]
    return f"{said[before[-1] if before else at - 1]} {said[at]}"


def _plain(text: str, most: int) -> str:
    line = " ".join(text.replace("**", "").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}\u2026"
