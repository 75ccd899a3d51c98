"""A tool's own output without what an agent wraps around it (frames, headings, line numbers), and the lines that say
what went wrong."""

from __future__ import annotations

import re
from itertools import pairwise, takewhile

import msgspec
from msgspec import Struct

_CODEX = re.compile(
    r"(?:Chunk ID: [^\n]{0,80}\n|Exit code: (?P<first>-?\d{1,9})\n|Wall time: [^\n]{0,80}\n"
    r"|Process exited with code (?P<second>-?\d{1,9})\n|Process running with session ID [^\n]{0,80}\n"
    r"|Original token count: \d+\n|Total output lines: \d+\n){1,8}(?:\n?Output:[ ]?\n?)?"
    r"(?:Warning: truncated output[^\n]{0,80}\n(?:Total output lines: \d+\n)?\n?)?"
)
_TAGGED = re.compile(r"\s{0,8}<returncode>(-?\d{1,9})</returncode>\s{0,8}(?:<output>\n?)?")
_LABELLED = re.compile(
    r"Exit code:? (-?\d{1,9})\n|OBSERVATION:\n|<persisted-output>\nOutput too large[^\n]{0,300}\n\n?"
    r"(?:Preview[^\n]{0,80}\n)?|<tool_use_error>"
)
_CLOSING = re.compile(
    r"(?:</output>|</persisted-output>|</tool_use_error>|\[The command completed with exit code (-?\d{1,9})\.?\]"
    r"|Command exited with code (-?\d{1,9})|Exit Code: (-?\d{1,9})|Process Group PGID: \d+"
    r"|\[(?:Current working directory|Python interpreter): [^\n\]]{0,300}\])\s*\Z"
)
_REMINDER = "<system-reminder>"
_ENVELOPE_TAIL = 600


class ToolOutput(msgspec.Struct, frozen=True):
    """A tool's own output. `exit_code` is None when the agent does not tell one."""

    body: str
    exit_code: int | None = None


class _CodexMetadata(msgspec.Struct):
    exit_code: int | None = None


class _CodexOutput(msgspec.Struct):
    output: str
    metadata: _CodexMetadata


def unwrap(text: str) -> ToolOutput:
    """Take off what the agent wrapped around a tool's output."""
    if text.startswith('{"output":'):
        found = _unwrap_json(text)
        if found is not None:
            return found
    start, code = _opening(text)
    end = len(text.rstrip())
    if text.endswith((">", ">\n")):
        reminder = text.rfind(_REMINDER, start)
        end = reminder if reminder >= 0 and text.rstrip().endswith("</system-reminder>") else end
    return _without_closing(text[start:end], code)


def body_start(text: str) -> int:
    """Where a tool's own output begins."""
    return _opening(text)[0]


def _opening(text: str) -> tuple[int, int | None]:
    first = text[:1]
    if first in ("C", "W", "P", "E"):
        match = _CODEX.match(text)
        if match:
            code = match.group("first") or match.group("second")
            return match.end(), int(code) if code else None
    match = _TAGGED.match(text) or _LABELLED.match(text) if first in ("<", "E", "O", "\n", " ") else None
    if match is None:
        return 0, None
    return match.end(), int(match.group(1)) if match.group(1) else None


def _unwrap_json(text: str) -> ToolOutput | None:
    try:
        found = msgspec.json.decode(text, type=_CodexOutput)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return ToolOutput(found.output, found.metadata.exit_code)


def _without_closing(body: str, code: int | None) -> ToolOutput:
    while (last := body[-40:].rstrip()[-1:]) and (last in ">]" or last.isdigit()):
        match = _CLOSING.search(body, max(0, len(body) - _ENVELOPE_TAIL))
        if match is None:
            break
        number = next((group for group in match.groups() if group), None)
        code = int(number) if number and code is None else code
        body = body[: match.start()].rstrip()
    return ToolOutput(body, code)


LINE_LENGTH = 120
_HEAD = 8_000
_TAIL = 12_000
_SEEN = 400
_END_LENGTH = 60


def _one_of(*phrases: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile("|".join(phrases), flags)


_SAYS_SOMETHING = re.compile(r"\w")
_WORD = re.compile(r"\w+")
_TAGS = re.compile(r"</?(?:tool_use_error|output|error|exception|stderr|stdout)>")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What runners print around the words that matter; used when there is nothing better.
_NOISE = _one_of(
    r"\W*(?:fail|failed|failures?|errors?)\W*$",
    r"[=_-]{3,} [^\n]{1,80} [=_-]{3,}$|=+ [^\n]*\b\d+ (?:failed|passed|errors?)\b",
    r"\s*(?:tests?:|test suites:|test files|ran \d+ tests?|\d+ (?:pass|fail|failed|failing|errors?))\b",
    r"(?:error: )?found \d+ errors?\b",
    r"\s*error trace:|error: script \S+ exited with|\s*elifecycle|\S*error: process completed with exit code",
    r"\W*(?:exit|error) (?:code|status)?:? ?\d+\W*$",
    r".{0,40}\bERROR task failed|make(?:\[\d+\])?: \*\*\*",
    r"npm (?:ERR!|error) (?:code|a complete log|errno|path)",
    r"ok\s+\S|warning:|\[?warn|string: ",
    r"FAIL\s+\S+\s+(?:[\d.]+m?s|\[)|FAILED \((?:errors|failures)=",
    r"Traceback \(most recent|During handling of the above|The above exception was",
    r"\d+ issues?:?\s*$|\* \w+: \d+|\s*\S+:\d+ \+0x|\S+:\d+: (?:: #|in \w)",
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
    r"unauthorized|exclude|not (?:a|an|been|in|allowed|supported)\b|must\b|no matches",
    flags=re.IGNORECASE,
)
# Words by which anybody would look for the first sign of trouble.
_NAIVE = _one_of(
    r"error|fail|fatal|exception|denied|not found|no such|cannot|panic|reject|conflict|timed out|invalid|undefined",
    flags=re.IGNORECASE,
)
_PASSING = re.compile(r"\s*(?:=== |--- PASS|\(pass\)|ok\b|PASS|[\u2713\u2714\u2705]|hint:)|.*\bsuccessfully\b")
_PLACE = re.compile(r"\s*\S+\.\w+:\d+(?::\d+)?:? \S")
_CHATTER = re.compile(r"\b(?:INFO|DEBUG|TRACE)\b")
# A line of a program that is shown around its error: an indented call, or code behind its line number.
_CODE = re.compile(r"\s+(?:return |raise |throw )?[\w.]+\(.*\)[;{ ]*$|\s*(?:\d+ )+[|│]")
_VAGUE = re.compile(r"warn|issue", re.IGNORECASE)
_NAMES = ("FAILED ", "FAIL: ", "ERROR: ", "--- FAIL")
# A line that names a failed test, and those that say what it found.
_TEST = re.compile(
    r"\s*(?:--- FAIL: |(?:FAILED|ERROR) \S+::|FAIL: \w|ERROR: \w+ \(|\(fail\) |not ok \d+|[✗✕✘×] \S|● \S)"
)
_NAMED_WITH_ERROR = re.compile(r"(?:FAILED|ERROR) \S+::.* - \S")
_ASSERTIONS = (
    _one_of(
        r"^E {2,8}\S|\bAssertionError\b|^\s*(?:Error|Messages?):\s+\S|^panic: |^thread '.*' panicked|\berror: expect",
    ),
    _one_of(r"expect\(.*\)\.|^\s*assert\b|\b[Ee]xpected\b|\bgot\b|\bwant\b|_test\.go:\d+:.*\b(?:should|must)\b"),
)
_COMPARED = re.compile(r"\s*(?:expected|received|actual|got|want|left|right)\s*:", re.IGNORECASE)
_MOST_COMPARED = 2
_SAID = "the user said:"


# Between the first and the last telling line of an error.
ERROR_SEPARATOR = " … "
_START = 40


def mentions_failure(tried: str, error: str, flat: str) -> bool:
    """Whether what was tried and every telling line of its error begin somewhere in a text without line breaks."""
    return leading_words(tried) in flat and mentions_error(error, flat)


def mentions_error(error: str, flat: str) -> bool:
    """Whether every telling line of an error begins somewhere in a text without line breaks."""
    return all(leading_words(words) in flat for words in error.split(ERROR_SEPARATOR))


def leading_words(words: str) -> str:
    """The beginning by which words are known again."""
    return " ".join(words.split())[:_START]


def error_lines(text: str) -> str:
    """What went wrong, verbatim: the failed test and its assertion, or the first and the last line that say so."""
    output = unwrap(text)
    # A tool's own complaint is its first line; what it quotes below is the agent's own text.
    lines = _lines(output.body)[: 1 if text.startswith("<tool_use_error>") else None]
    if not lines:
        return "" if output.exit_code is None else f"exit code {output.exit_code}"
    # A client hands over the user's own words behind a refusal.
    user = next((line for before, line in pairwise(lines) if before.rstrip().endswith(_SAID)), "")
    first, last = (line.strip() for line in ((user, user) if user else _first_and_last(lines)))
    if set(_WORD.findall(last.lower())) <= {*_WORD.findall(first.lower()), "message"}:
        # The end of a long line often says what its beginning does not: "… timed out after 60 seconds".
        end = first[LINE_LENGTH:][-_END_LENGTH:]
        last = end if _NAIVE.search(end) else ""
    return ERROR_SEPARATOR.join(filter(None, (first[:LINE_LENGTH].rstrip(), last[:LINE_LENGTH].strip())))


def _lines(text: str) -> list[str]:
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = _TAGS.sub("", _COLOURS.sub("", text) if "\x1b" in text else text)
    # Of a line that was written over again and again, a progress bar, only the last state was to be read.
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line for line in shown if _SAYS_SOMETHING.search(line)]


def _first_and_last(lines: list[str]) -> tuple[str, str]:
    """The failed test with its assertion, the exceptions that were raised, or the first and last word of trouble."""
    raised = _raised(lines)
    if raised:
        return next((line for line in lines if line.startswith(_NAMES)), raised[0]), raised[-1]
    failed = _failed_test(lines)
    if failed:
        return failed
    for matches in (_is_strong, _PLACE.match, _WEAK.search, _NAIVE.search):
        found = [line for line in lines if matches(line[:_SEEN]) and not _is_noise(line[:_SEEN])]
        if found:
            return found[0], found[-1]
    vague = [line for line in lines if (_WEAK.search(line) or _VAGUE.search(line)) and not _PASSING.match(line)]
    return (vague[-1], vague[-1]) if vague else (lines[0], lines[-1])


def _failed_test(lines: list[str]) -> tuple[str, str] | None:
    """The name of the first failed test that says why, and why; a runner may print either of the two first."""
    named = [at for at, line in enumerate(lines) if _TEST.match(line)]
    if not named:
        return None
    with_error = next((lines[at] for at in named if _NAMED_WITH_ERROR.match(lines[at])), "")
    if with_error:
        return with_error, with_error
    before, ends = (-1, *named[:-1]), (*named[1:], len(lines))
    for at, start, end in zip(named, before, ends, strict=True):
        behind, ahead = range(at - 1, start, -1), range(at + 1, end)
        for places in (behind, ahead) if lines[at].lstrip().startswith("(fail)") else (ahead, behind):
            why = _assertion(lines, places)
            if why:
                return lines[at], why
    strong = [line for line in lines if _is_strong(line[:_SEEN]) and not _TEST.match(line)]
    return lines[named[0]], strong[-1] if strong else lines[named[-1]]


def _assertion(lines: list[str], places: range) -> str:
    """The first assertion at some places, with what it compared in the lines around it; else the last place named."""
    clear = [at for at in places if not _is_noise(lines[at][:_SEEN])]
    for pattern in _ASSERTIONS:
        found = next((at for at in clear if pattern.search(lines[at][:_SEEN])), None)
        if found is not None:
            start = found - 1 if found - 1 in clear and _COMPARED.match(lines[found]) else found
            below = takewhile(_COMPARED.match, lines[start + 1 : start + 1 + _MOST_COMPARED])
            return " ".join(" ".join(each[:_SEEN].split()) for each in (lines[start], *below))
    return next((lines[at] for at in sorted(clear, reverse=True) if _PLACE.match(lines[at][:_SEEN])), "")


def _is_strong(line: str) -> bool:
    return bool(_STRONG.search(line) or (_PLACE.match(line) and _WEAK.search(line))) and not _is_noise(line)


def _is_noise(line: str) -> bool:
    return any(pattern.match(line) for pattern in (_NOISE, _PASSING, _CODE)) or _CHATTER.search(line) is not None


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


# Read over the whole text at once: a leading newline instead of `^` lets the engine jump from line to line.
_STYLES = (
    re.compile(r"\n *(\d{1,9})(?:→|\t)([^\n]*)"),
    re.compile(r"\n *(\d{1,9}) ?\| ?([^\n]*)"),
    re.compile(r"\nL?(\d{1,9}): ?([^\n]*)"),
)
# Where an agent left out the middle: lines behind it have lost their numbers.
_GAP = re.compile(r"…\s?\d+ (?:tokens|chars|characters|lines)|\d+ characters (?:elided|truncated)|<elided_chars>")


class NumberedLines(Struct, frozen=True):
    """A file's lines, and the number of each in the file; 0 where it cannot be known."""

    lines: list[str]
    numbers: list[int]

    @property
    def is_whole_from_start(self) -> bool:
        """Whether the text begins with the file's first line and leaves none out."""
        return bool(self.numbers) and self.numbers[0] == 1 and self.numbers[-1] == len(self.numbers)


def read_numbered_lines(lines: list[str], first: int = 1) -> NumberedLines:
    """Take the line numbers off; without any, count from `first`, or not at all when it is 0."""
    style = next((style for style in _STYLES if _is_in_style(lines[:12], style)), None)
    if style is None:
        return NumberedLines(lines, _count(lines, first))
    found = style.findall("\n" + "\n".join(lines))
    return NumberedLines([text for _, text in found], [int(number) for number, _ in found])


def _count(lines: list[str], first: int) -> list[int]:
    if first == 0:
        return [0] * len(lines)
    text = "\n".join(lines)
    cut = any(word in text for word in ("truncated", "elided", " lines"))
    gap = next((at for at, line in enumerate(lines) if _GAP.search(line)), len(lines)) if cut else len(lines)
    return [*range(first, first + gap), *[0] * (len(lines) - gap)]


def _is_in_style(lines: list[str], style: re.Pattern[str]) -> bool:
    """Numbered: the first numbered lines follow one another, and nearly all lines are."""
    numbers = [int(number) for number, _ in style.findall("\n" + "\n".join(lines))]
    enough = numbers and len(numbers) >= max(min(3, len(lines)), len(lines) - 4)
    return bool(enough) and all(after == before + 1 for before, after in pairwise(numbers))
