"""What was decided: the user's rules and corrections, choices, approvals and denials, and conclusions of either
side."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from context_compactor.dialects.messages import Role
from context_compactor.dialects.turns import ToolUse, Turn, reference_id
from context_compactor.facts import utterances as cues
from context_compactor.facts.calls import ASKING_TOOLS, CallInTurn, objects_in, parse_call
from context_compactor.facts.fact import Fact, FactKind
from context_compactor.facts.failures import call_text
from context_compactor.facts.kinds import reference_of
from context_compactor.facts.outcomes import is_refusal
from context_compactor.facts.utterances import Utterance, sentences, without_code
from context_compactor.text import clip

_SHORT_MESSAGE_LENGTH = 900
_LONGEST_RULE = 400
_MOST_PER_MESSAGE = 6
_LEAST_WORDS = 4
_ONE_SENTENCE = 150
_MOST_SENTENCES = 200
_MOST_LABELLED = 30
_RULE_LABEL_SIGNS = (
    "rule", "important", "remember", "note", "nb", "constraint", "requirement", "regel", "wichtig", "merke", "regla",
)  # fmt: skip
_LABELLED_RULE = re.compile(
    rf"^[ \t]{{0,8}}(?:[-*+•]|\d{{1,3}}[.)]|#{{1,6}})?[ \t]{{0,4}}((?:\*\*|__)?(?:{cues.RULE_LABELS})[^\n]*)$",
    re.IGNORECASE | re.MULTILINE,
)


def constraint_facts(utterances: Iterable[Utterance]) -> list[Fact]:
    """Every rule and correction of the user; one that is said again counts, one that is revised goes."""
    found: dict[str, Fact] = {}
    for utterance in utterances:
        for sentence in _rules_in(utterance.text):
            for old in cues.revised(sentence, found):
                del found[old]
            before = found.get(sentence)
            first = before.turn if before else utterance.turn
            count = before.count + 1 if before else 1
            ref = reference_id("turn", utterance.turn)
            found[sentence] = Fact("constraint", sentence, first, "user", "", "active", count, utterance.turn, ref)
    return list(found.values())


class _PresentCues(Struct, frozen=True):
    """The cues that stand somewhere in a message: only these need to be looked for in its sentences."""

    hard: tuple[str, ...] = cues.HARD_RULES
    addressed: tuple[str, ...] = cues.ADDRESSED_RULES
    soft: tuple[str, ...] = cues.SOFT_RULES
    reports: tuple[str, ...] = cues.REPORTS


_EVERY_CUE = _PresentCues()


def _present_cues(text: str) -> _PresentCues:
    words = cues.spaced(text)
    return _PresentCues(*(tuple(cue for cue in each if cue in words) for each in structs.astuple(_EVERY_CUE)))


def _rules_in(text: str) -> Iterator[str]:
    """What a message labels as a rule, line by line, and the sentences that are rules without a label."""
    is_short = len(text) < _SHORT_MESSAGE_LENGTH
    kept = 0
    labelled = list(islice(_labelled_rules(text), _MOST_LABELLED))
    yield from labelled
    if labelled:
        text = "\n".join(line for line in text.split("\n") if not any(each in line for each in labelled))
    present = _present_cues(text) if _ONE_SENTENCE < len(text) < _SHORT_MESSAGE_LENGTH * 2 else _EVERY_CUE
    for at, sentence in enumerate(islice(sentences(text), _MOST_SENTENCES)):
        is_counted = kept < _MOST_PER_MESSAGE and len(sentence) <= _LONGEST_RULE
        if is_counted and is_rule(sentence, is_short, at == 0, present):
            kept += 1
            yield sentence


def _labelled_rules(text: str) -> Iterator[str]:
    if text.isascii() and not cues.has_any(text.lower(), _RULE_LABEL_SIGNS):
        return
    for match in _LABELLED_RULE.finditer(without_code(text)):
        line = match[1].strip()
        if len(line) > _LONGEST_RULE:
            line = next(sentences(line), "")
        if 5 < len(line) <= _LONGEST_RULE and not line.endswith(("?", ":", "\uff1f")):
            yield line


def is_rule(sentence: str, is_short: bool = True, opens: bool = False, present: _PresentCues = _EVERY_CUE) -> bool:
    """Whether a sentence orders, forbids, prefers or corrects. `opens`: it begins a message."""
    if sentence.endswith(("?", "\uff1f", ":")):
        return False
    words = cues.spaced(sentence)
    if not sentence.isascii() and cues.has_any(sentence, cues.UNSPACED_RULES):
        return True
    if is_short and opens and _is_correction(words, sentence):
        return True
    for report in present.reports:
        words = words.replace(report, " ") if report in words else words
    first = words.split(maxsplit=1)[0] if words.strip() else ""
    is_question = first in cues.QUESTIONS and not words.lstrip().startswith("do not ")
    return not is_question and _is_order(sentence, words, first, is_short, present)


def _is_order(sentence: str, words: str, first: str, is_short: bool, present: _PresentCues) -> bool:
    if cues.has_any(words, present.hard) or (" do" in words and cues.FORBIDS.search(sentence)):
        return True
    if cues.has_any(words, cues.SOFT_HEDGES) or "? " in sentence:
        return False
    if cues.has_any(words, present.addressed):
        return first in cues.ORDERS or cues.has_any(words, cues.ADDRESSES)
    if not is_short or not cues.has_any(words, present.soft) or len(words.split()) < _LEAST_WORDS:
        return False
    return " whether " not in words


def _is_correction(words: str, sentence: str) -> bool:
    if sentence.startswith(cues.UNSPACED_CORRECTIONS):
        return len(sentence) > 5
    return words.count(" ") > 3 and words.startswith(cues.CORRECTIONS) and not words.startswith(cues.NOT_CORRECTIONS)


_LONGEST_REPLY = 300
_LONGEST_QUOTE = 100
_LONGEST_CHOICE = 320
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


def choice_facts(user: Sequence[Utterance], agent: Sequence[Utterance]) -> list[Fact]:
    """Decisions the user made by a short reply: the option that was picked, or the proposal that was agreed to."""
    turns_spoken = [utterance.turn for utterance in agent]
    found: list[Fact] = []
    for reply in user:
        at = bisect_left(turns_spoken, reply.turn) - 1
        if at < 0 or len(reply.text) > _LONGEST_REPLY:
            continue
        asked = agent[at].text[-_LAST_TEXT:]
        said = " ".join(reply.text.split())
        quote = clip(said, _LONGEST_QUOTE)
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
    return _plain(question_with_context(said, at), _LONGEST_OPTION)


def _chosen(reply: str, asked: str) -> list[str]:
    """The options that a reply names, as the agent worded them."""
    words = cues.spaced(reply).split()
    if not words or len(_NUMBERED.findall(reply)) > 1:
        return []
    may_pick = any(len(word) == 1 or word in _ORDINALS or word in _EVERYTHING for word in words)
    options = _options(asked) if may_pick else {}
    if len(options) < 2:
        return []
    return [options[key] for key in _keys(reply, words, list(options)) if key in options][:_MOST_OPTIONS]


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
        return _plain(said[advice[-1]], _LONGEST_CHOICE) if advice else ""
    if _SMALL.search(said[at]) or words[at].split(maxsplit=1)[0] in _OPEN_QUESTIONS:
        return ""
    is_alone = at == 0 and len(set(words[at].split()) - _BARE) <= 1
    return "" if is_alone else _plain(question_with_context(said, at), _LONGEST_CHOICE)


def question_with_context(said: Sequence[str], at: int) -> str:
    """A question, with the advice or the sentence before it where it only points back ("Want me to do that?")."""
    if at == 0 or len(set(cues.spaced(said[at]).split()) - _BARE) > 1:
        return said[at]
    before = [each for each in range(max(0, at - 6), at) if cues.has_any(cues.spaced(said[each]), cues.ADVICE)]
    return f"{said[before[-1] if before else at - 1]} {said[at]}"


def _plain(text: str, most: int) -> str:
    return clip(" ".join(text.replace("**", "").split()), most)


_SHORTEST_DECISION = 25
_SHORT_DECISION = 200
_SHORTEST_FINDING = 40
_LONGEST_DECISION = 400
_MOST_DECISIONS = 40
_MOST_FINDINGS = 8
_MOST_AT_ONCE = 3
_LABELLED_DECISION = re.compile(
    rf"^[ \t]{{0,8}}(?:[-*+•]|\d{{1,3}}[.)]|#{{1,6}})?[ \t]{{0,4}}((?:\*\*|__)?{cues.DECISION_LABELS}[^\n]{{5,400}})$",
    re.IGNORECASE | re.MULTILINE,
)
# Every line that the lists can match holds one of these, so most lines need no closer look.
DECISION_SIGNS = (
    *cues.UNSPACED_DECISIONS,
    "decid", "décid", "decision", "décis", "decisi", "entscheid", "решени", "considered", "go with", "going with",
    "went with", "opted", "opting", "settled on", "chose", "ruled out", "rejected b", "favo", "approach is", "plan is",
    "fix is", "instead of", "rather than", "because", "so that", "not worth", "to avoid", "root cause", "cause is",
    "cause was", "caused by", "found it", "found the", "real issue", "real problem", "actual issue", "actual problem",
    "issue is", "issue was", "problem is", "problem was", "bug is", "bug was", "the bug", "turns out", "turned out",
    "culprit", "reason is", "reason was", "entschieden", "beschlossen", "решили",
)  # fmt: skip
_PLAIN_SIGNS = tuple(sign for sign in DECISION_SIGNS if sign.isascii())


def decision_facts(user: Sequence[Utterance], agent: Sequence[Utterance]) -> list[Fact]:
    """What was decided, and what was found out (status `finding`; only the newest, since they replace each other).

    What its author took back is left out, and so is what a later decision on the same subject revises.
    """
    found = [*_decisions_of(user, "user"), *_decisions_of(agent, "assistant"), *choice_facts(user, agent)]
    ordered = sorted(found, key=lambda fact: fact.turn)
    distinct = list({(fact.status, fact.content): fact for fact in ordered}.values())
    decisions = [fact for fact in distinct if not fact.status]
    findings = _newest_findings([fact for fact in distinct if fact.status], [utterance.turn for utterance in user])
    kept = [*_unrevised(decisions)[-_MOST_DECISIONS:], *findings[-_MOST_FINDINGS:]]
    return sorted(kept, key=lambda fact: fact.turn)


def _unrevised(decisions: Iterable[Fact]) -> list[Fact]:
    kept: dict[str, Fact] = {}
    for fact in decisions:
        for old in cues.revised(fact.content, kept):
            del kept[old]
        kept[fact.content] = fact
    return list(kept.values())


def _newest_findings(findings: list[Fact], turns_spoken: list[int]) -> list[Fact]:
    """Of what was found out between two sayings of the user the last ones: they stand for those before them."""
    groups: dict[int, list[Fact]] = {}
    for fact in findings:
        groups.setdefault(bisect_left(turns_spoken, fact.turn), []).append(fact)
    kept: list[Fact] = []
    for group in groups.values():
        sure = [fact for fact in group if cues.has_any(cues.spaced(fact.content), cues.CAUSES)]
        others = [fact for fact in group if fact not in sure]
        kept += sorted((*sure[-_MOST_AT_ONCE:], *others[-1:]), key=lambda fact: fact.turn)
    return kept


def _decisions_of(utterances: Iterable[Utterance], role: Role) -> list[Fact]:
    found: list[Fact] = []
    for utterance in utterances:
        low = utterance.text.lower()
        if "let me " in low[:20] and len(low) < _SHORT_DECISION and ". " not in low and "\n" not in low:
            continue  # one sentence that says what comes next: most of what an agent says between its calls
        if role == "assistant" and found and found[-1].status and cues.has_any(low[:200], _RETRACTIONS):
            # Its author may begin by taking back the last finding.
            words = cues.spaced(next(sentences(utterance.text), ""))
            if words.startswith(cues.RETRACTIONS) and found[-1].status == "finding":
                found.pop()
        # Only signs that stand somewhere in the text need to be looked for in its lines.
        signs = tuple([sign for sign in (_PLAIN_SIGNS if low.isascii() else DECISION_SIGNS) if sign in low])
        if signs:
            found += _decisions_in(without_code(utterance.text), signs, utterance.turn, role)
    return found


def _decisions_in(text: str, signs: tuple[str, ...], turn: int, role: Role) -> list[Fact]:
    may_be_labelled = any(sign in _DECISION_LABEL_SIGNS for sign in signs)
    labelled = [match.strip() for match in _LABELLED_DECISION.findall(text)] if may_be_labelled else []
    found = [_decision_fact(line, turn, role, "") for line in labelled]
    for line in text.split("\n"):
        if cues.has_any(line.lower(), signs) and not any(each in line for each in labelled):
            for sentence in sentences(line):
                status = _decision_status(sentence, role, signs)
                if status is not None:
                    found.append(_decision_fact(sentence, turn, role, status))
    return found


_RETRACTIONS = tuple(cue.strip() for cue in cues.RETRACTIONS)
_DECISION_LABEL_SIGNS = frozenset(("decid", "decision", "décis", "entscheid", "decisi", "решени", "决定"))


def _decision_fact(sentence: str, turn: int, role: Role, status: str) -> Fact:
    return Fact("decision", sentence, turn, role, "", status, 1, turn, reference_id("turn", turn))


def _decision_status(sentence: str, role: Role, signs: tuple[str, ...]) -> str | None:
    if len(sentence) > _LONGEST_DECISION or sentence.rstrip("*_ ").endswith(("?", ":", "\uff1f")):
        return None
    if not sentence.isascii() and cues.has_any(sentence, cues.UNSPACED_DECISIONS):
        return ""
    if len(sentence) < _SHORTEST_DECISION or not cues.has_any(sentence.lower(), signs):
        return None
    words = cues.spaced(sentence)
    if _decides(words):
        status = ""
    elif role == "assistant" and len(sentence) >= _SHORTEST_FINDING and cues.has_any(words, cues.FINDINGS):
        status = "finding"
    else:
        return None
    is_loose = cues.has_any(words, cues.HEDGES) or words.split(maxsplit=1)[0] in cues.QUESTIONS
    return None if is_loose else status


def _decides(words: str) -> bool:
    if cues.has_any(words, cues.DECISIONS):
        return True
    if " considered " in words and cues.has_any(words, (" but ", " rejected ", " instead ")):
        return True
    is_choice = cues.has_any(words, cues.INTENTS) and cues.has_any(words, cues.CHOICES)
    return is_choice and not cues.has_any(words, cues.LOOKS)


_USER_SAID = re.compile(r"the user said:\s*(\S.{0,600}?)(?=\n\n|\Z)", re.DOTALL)
_QUESTION_ANSWER = re.compile(r'"([^"\n]{1,400})"="([^"\n]{1,600})"')
_APPROVED = re.compile(r"\W*(?:user has approved|the user (?:has )?approved|approved by (?:the )?user)", re.IGNORECASE)
_LONGEST_ANSWER = 3_000
_LONGEST_DESCRIPTION = 160


def consent_facts(calls: Sequence[CallInTurn]) -> list[Fact]:
    """Denials with what the user said to them, approved plans, and decisions by an answer to a question."""
    found: list[Fact] = []
    for turn, exchange, parsed in calls:
        answer = exchange.result.text if exchange.result else ""
        if is_refusal(answer) and len(answer) < _LONGEST_ANSWER:
            words = refusal_words(answer)[:300]
            detail = f"the user said: {words}" if words else ""
            found.append(_consent_fact("denial", call_text(exchange.call), detail, turn, exchange))
        elif parsed.tool == "exitplanmode" and _APPROVED.match(answer[:200]):
            found.append(_consent_fact("approval", "plan approved", "", turn, exchange))
        elif parsed.tool in ASKING_TOOLS and exchange.result and not exchange.result.is_error:
            found += _answers(exchange, turn, answer, parsed.arguments)
    return found


def refusal_words(answer: str) -> str:
    """What the user said to a call that was refused, in one line; empty where nothing was said."""
    said = _USER_SAID.search(answer[:_LONGEST_ANSWER])
    return " ".join(said[1].split()) if said else ""


def answers_in(answer: str) -> list[tuple[str, str]]:
    """Each question of an asking tool with the user's answer."""
    return [(question, reply.strip()) for question, reply in _QUESTION_ANSWER.findall(answer[:_LONGEST_ANSWER])]


def replies_through_tools(turns: Iterable[Turn]) -> list[Utterance]:
    """What the user said through tools: to a call that was denied, and to questions."""
    found: list[Utterance] = []
    for turn in turns:
        for exchange in turn.exchanges:
            answer = exchange.result.text[:_LONGEST_ANSWER] if exchange.result else ""
            said = refusal_words(answer) if is_refusal(answer) else ""
            asked = exchange.call is not None and parse_call(exchange.call).tool in ASKING_TOOLS
            words = said or (answer if asked else "")
            if words.strip():
                found.append(Utterance(turn.number, words.strip()))
    return found


def _answers(exchange: ToolUse, turn: int, answer: str, arguments: dict[str, Any]) -> list[Fact]:
    """Each question with its answer; an option that the agent had described is told with its description."""
    pairs = answers_in(answer)
    if not pairs and answer.strip():
        return [_consent_fact("approval", " ".join(answer[:300].split()), call_text(exchange.call), turn, exchange)]
    options = {
        str(option.get("label")): " ".join(option["description"].split())[:_LONGEST_DESCRIPTION]
        for question in objects_in(arguments, "questions")
        for option in objects_in(question, "options")
        if isinstance(option.get("description"), str)
    }
    return [
        _consent_fact("decision", f"{question} \u2192 {reply}", options.get(reply, ""), turn, exchange)
        for question, reply in pairs
    ]


def _consent_fact(kind: FactKind, content: str, detail: str, turn: int, exchange: ToolUse) -> Fact:
    return Fact(kind, content, turn, "tool", detail, "", 1, turn, reference_of(exchange))
