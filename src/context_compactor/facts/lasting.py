"""What holds beyond the session it was said or met in: rules of the user, and errors that are not slips of a moment.

Both are read in every session to come, so what is not clearly one of these is none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from context_compactor.facts import cues
from context_compactor.facts.fact import Fact

_SHORTEST, _LONGEST = 20, 300
# More rules in one message are a page of instructions, which whoever wrote it will give again.
_MOST_IN_A_MESSAGE = 3

_LASTING = (
    " from now on ", " going forward ", " in this repo ", " in this repository ", " in this project ",
    " in this codebase ", " in our repo ", " in our project ", " in our codebase ", " as a rule ", " every time ",
    " each time ", " whenever ", " our convention ", " by convention ", " in the future ", " in future ",
    " for future ", " remember to ", " remember that ", " at all times ", " our policy ", " ab jetzt ",
    " grundsätzlich ", " in diesem projekt ", " désormais ", " dans ce projet ", " a partir de ahora ",
    " en este proyecto ",
)  # fmt: skip
_UNSPACED_LASTING = ("今后", "以后", "从现在起", "今後", "これから", "앞으로")
# An order: the word opens the sentence, or stands behind whoever is to follow it.
_ORDERED = re.compile(
    r"(?:^|[.,;:!(\u2013-] ?|\b(?:please|and|but|also|so|should|must|to|you|we|claude|agents?|bitte) )"
    r"(?:always|never|immer|niemals|nie|toujours|jamais|siempre|nunca)\s+(?!mind\b|got\b|had\b|was\b|were\b|saw\b)\w+",
    re.IGNORECASE,
)
_POINTS_ELSEWHERE = re.compile(
    r"\b(?:always|never) \w+ (?:this|that|it|them|these|those|so)\b|\b(?:this|that) (?:is|was|should|one)\b",
    re.IGNORECASE,
)
_MEMORY_FILE = re.compile(r"\b(?:CLAUDE|AGENTS|GEMINI)\.md\b|\.cursorrules\b|\bcopilot-instructions\b")
_ORDERS = (
    " make sure ", " should ", " must ", " never ", " always ", " don't ", " do not ", " ask ", " only ", " prefer ",
)  # fmt: skip
# About the work at hand, not sure yet, or said to the agent about its answers.
_PASSING = (
    " for now ", " this time ", " currently ", " today ", " right now ", " now ", " this pr ", " this commit ",
    " this branch ", " this session ", " this task ", " this issue ", " this change ", " this step ", " here ",
    " your response ", " your answer ", " tool call ", " i think ", " maybe ", " perhaps ", " probably ", " i guess ",
    " not sure ", " would ", " could ", " i mean ", " i meant ", " if possible ",
)  # fmt: skip
_REPLIES = (" yes ", " yeah ", " yep ", " no ", " nah ", " nope ", " ok ", " okay ", " hmm ", " ah ", " oh ", " well ")

_LOOKING = frozenset(
    "rg grep egrep fgrep ag ack sed awk gawk jq yq find fd ls tree cat head tail nl wc cut sort uniq xargs tr diff "
    "read glob list search edit write multiedit notebookedit apply_patch update view open fetch webfetch "
    "websearch".split()
)
_PREFIX = re.compile(r"^(?:`|\(|cd \S+ ?(?:&&|;) ?|\w+=\S* |sudo |env |time |timeout \S+ )+")
_BY_A_LOOK = re.compile(
    r"^(?:rg|grep|egrep|sed|awk|jq|yq|find|ls|cat|head|tail|zsh|bash|sh)\b[^a-z]{0,12}:", re.IGNORECASE
)
_MISSING_PROGRAM = re.compile(r"command not found|not installed|no module named|cannot find module", re.IGNORECASE)
# The code under work: its tests, its compiler, a file that is not there, a command that was written wrongly.
_OF_THE_MOMENT = re.compile(
    r"^\s*(?:-{2,3} )?fail\b|\[build failed\]|assert|\bexpected\b|^\s*[\w./\\-]+\.\w{1,5}[:(]\d|\bundefined\b"
    r"|no such file|does not exist|\bnot found \(http|unmatched|unrecogni[sz]ed|unexpected|syntax ?error|\bparse error"
    r"|\blint\b|\|.*\||old_string|string to replace|merge conflict"
    r"|exit(?:ed with)? (?:code|status) \d+\s*$|has been modified",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"error|fail|not found|no module|cannot|can't|could not|denied|refused|missing|unknown|invalid|timed? ?out|unable"
    r"|exception|not installed|require|unsupported|in use|is taken|conflict|exceeded|forbidden|unauthori[sz]ed|locked"
    r"|fatal",
    re.IGNORECASE,
)


def lasting_rules(facts: Sequence[Fact]) -> list[Fact]:
    """The rules of the user that hold in other sessions as well."""
    said = Counter(fact.turn for fact in facts if fact.kind == "constraint")
    return [fact for fact in facts if said[fact.turn] <= _MOST_IN_A_MESSAGE and is_lasting_rule(fact)]


def is_lasting_rule(fact: Fact) -> bool:
    """Whether a rule says by itself that it holds beyond the work at hand, and can be understood without it."""
    text = fact.content
    if fact.kind != "constraint" or fact.role != "user" or len(text) > _LONGEST:
        return False
    if cues.has_any(text, _UNSPACED_LASTING):
        return True
    words = cues.spaced(text)
    is_passing = cues.has_any(words.replace(" from now on ", " "), _PASSING)
    if is_passing or len(text) < _SHORTEST or "?" in text:
        return False
    if _MEMORY_FILE.search(text):
        return cues.has_any(words, _ORDERS)
    if words.startswith(_REPLIES) or _POINTS_ELSEWHERE.search(text):
        return False
    return cues.has_any(words, _LASTING) or _ORDERED.search(text) is not None


def is_slip(fact: Fact) -> bool:
    """Whether an error tells nothing about the project: a look that found nothing, or code that was under work."""
    error = fact.detail or fact.content
    if _MISSING_PROGRAM.search(error):
        return False
    program = _PREFIX.sub("", fact.content).split(maxsplit=1)[0:1] if fact.detail else []
    is_look = bool(program) and program[0].rsplit("/", 1)[-1].lower() in _LOOKING
    return is_look or not _TELLS.search(error) or bool(_BY_A_LOOK.match(error) or _OF_THE_MOMENT.search(error))
