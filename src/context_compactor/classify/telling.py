"""The lines of a failure's output that tell what went wrong."""

from __future__ import annotations

import re

from context_compactor.classify.envelope import unwrap

LINE_LENGTH = 120
_HEAD = 8_000
_TAIL = 12_000
_SEEN = 400
_END_LENGTH = 60


def _one_of(*phrases: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile("|".join(phrases), flags)


_SAYS_SOMETHING = re.compile(r"\w")
_TAGS = re.compile(r"</?(?:tool_use_error|output|error|exception|stderr|stdout)>")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What runners print around the words that matter; used when there is nothing better.
_NOISE = _one_of(
    r"\W*(?:fail|failed|failures?|errors?)\W*$",
    r"\W*(?:exit|error) (?:code|status)? ?\d+\W*$",
    r".{0,40}\bERROR task failed|make(?:\[\d+\])?: \*\*\*",
    r"npm (?:ERR!|error) (?:code|a complete log|errno|path)",
    r"ok\s+\S|warning:|\[?warn|string: ",
    r"FAIL\s+\S+\s+(?:[\d.]+m?s|\[)|FAILED \((?:errors|failures)=",
    r"Traceback \(most recent|During handling of the above|The above exception was",
    r"\d+ issues?:?\s*$|\* \w+: \d+|\s*\S+:\d+ \+0x",
    flags=re.IGNORECASE,
)
_STRONG = _one_of(
    r"^(?:FAILED|FAIL|ERROR|E  )\W|--- FAIL|^\s*[✗✕✘●]|\bnot ok \d|^CONFLICT ",
    r"^[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b[:( ]",
    r"\b(?:fatal|panic|error|Error|ERROR)(?:\[\w+\])?:|: error ",
    r"npm (?:ERR!|error) |command not found|[Pp]ermission denied|[Nn]o such file|[Nn]ot [Ff]ound\b|[Ff]ailed to ",
    r"does not exist|doesn't want to proceed|interrupted by user|timed out|[Uu]nknown (?:flag|command|option)",
)
_WEAK = _one_of(
    r"error|fail|fatal|exception|denied|not found|cannot|can't|could not|unable|undefined|unknown|invalid|no such",
    r"refused|reject|timeout|panic|missing|unexpected|expected|mismatch|conflict|abort|killed|illegal|forbidden",
    r"unauthorized|not (?:a|an|been|in|allowed|supported)\b|must\b|no matches",
    flags=re.IGNORECASE,
)
# Words by which anybody would look for the first sign of trouble.
_NAIVE = _one_of(
    r"error|fail|fatal|exception|denied|not found|no such|cannot|panic|reject|conflict|timed out|invalid|undefined",
    flags=re.IGNORECASE,
)
_PASSING = re.compile(r"\s*(?:=== |--- PASS|\(pass\)|ok\b|PASS|[\u2713\u2714\u2705]|hint:)")
_PLACE = re.compile(r"\s*\S+\.\w+:\d+(?::\d+)?:? \S")
_CHATTER = re.compile(r"\b(?:INFO|DEBUG|TRACE)\b")
_NAMES = ("FAILED ", "FAIL: ", "ERROR: ", "--- FAIL")
_SAID = "the user said:"


# Between the first and the last telling line of an error.
BETWEEN = " … "
_START = 40


def stands_in(tried: str, error: str, flat: str) -> bool:
    """Whether what was tried and every telling line of its error begin somewhere in a text without line breaks."""
    return start_of(tried) in flat and error_stands_in(error, flat)


def error_stands_in(error: str, flat: str) -> bool:
    """Whether every telling line of an error begins somewhere in a text without line breaks."""
    return all(start_of(words) in flat for words in error.split(BETWEEN))


def start_of(words: str) -> str:
    """The beginning by which words are known again."""
    return " ".join(words.split())[:_START]


def telling_lines(text: str) -> str:
    """The first and the last line that say what went wrong, verbatim, joined when they differ."""
    output = unwrap(text)
    # A tool's own complaint is its first line; what it quotes below is the agent's own text.
    lines = _lines(output.body)[: 1 if text.startswith("<tool_use_error>") else None]
    if not lines:
        return "" if output.exit_code is None else f"exit code {output.exit_code}"
    first, last = (line.strip() for line in _first_and_last(lines))
    # The end of a long line often says what its beginning does not: "… timed out after 60 seconds".
    last = last[:LINE_LENGTH] if first != last else _telling_end(last)
    return BETWEEN.join(filter(None, (first[:LINE_LENGTH].rstrip(), last.strip())))


def _telling_end(line: str) -> str:
    end = line[LINE_LENGTH:][-_END_LENGTH:]
    return end if _NAIVE.search(end) else ""


def _lines(text: str) -> list[str]:
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = _TAGS.sub("", _COLOURS.sub("", text) if "\x1b" in text else text)
    return [line for line in text.split("\n") if _SAYS_SOMETHING.search(line)]


def _first_and_last(lines: list[str]) -> tuple[str, str]:
    """The first line with a word of trouble in it, and the best of the later ones."""
    raised = _raised(lines)
    if raised:
        return next((line for line in lines if line.startswith(_NAMES)), raised[0]), raised[-1]
    first = next((line for line in lines if _is_naive(line[:_SEEN])), "")
    said = _said(lines)
    if first and said:
        return first, said
    for tells in (_is_strong, _is_place, _is_weak):
        last = next((line for line in reversed(lines) if line != first and tells(line[:_SEEN])), "")
        if last:
            return first or next(line for line in lines if tells(line[:_SEEN])), last
    return first or lines[0], first or lines[-1]


def _is_naive(line: str) -> bool:
    return _NAIVE.search(line) is not None and not _PASSING.match(line) and not _CHATTER.search(line)


def _is_strong(line: str) -> bool:
    tells = _STRONG.search(line) or (_PLACE.match(line) and _WEAK.search(line))
    return bool(tells) and _is_any(line) and not _CHATTER.search(line)


def _is_place(line: str) -> bool:
    return _PLACE.match(line) is not None and _is_any(line) and not _CHATTER.search(line)


def _is_weak(line: str) -> bool:
    return _WEAK.search(line) is not None and _is_any(line) and not _CHATTER.search(line)


def _is_any(line: str) -> bool:
    return _NOISE.match(line) is None


def _raised(lines: list[str]) -> list[str]:
    """The last unindented line of each traceback: the exception with its message."""
    found: list[str] = []
    inside = False
    for line in lines:
        if line.lstrip().startswith("Traceback (most recent call last)"):
            inside = True
        elif inside and not line[0].isspace() and not line.startswith("|"):
            found.append(line)
            inside = False
    return found


def _said(lines: list[str]) -> str:
    """The user's own words, where a client hands them over with a refusal."""
    for at, line in enumerate(lines[:-1]):
        if line.rstrip().endswith(_SAID):
            return lines[at + 1]
    return ""
