"""Which files a shell command shows, which it changes and how, and which lines it shows."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from context_compactor.classify.shell import Step

# First and last line; the last is None up to the end, and (0, None) is a part whose place cannot be told.
Lines = tuple[int, int | None]
SOMEWHERE: Lines = (0, None)

_SHOWS = frozenset("cat sed head tail nl bat batcat less more awk gawk view open".split())
# Options whose next word is a value and not a file.
_COUNTS = frozenset(("-n", "-c", "--lines", "--bytes"))
_VALUED: dict[str, frozenset[str]] = {
    "sed": frozenset(("-e", "-f")),
    "perl": frozenset(("-e",)),
    "head": _COUNTS,
    "tail": _COUNTS,
    **dict.fromkeys(("awk", "gawk"), frozenset(("-F", "-v", "-f"))),
    **dict.fromkeys(("bat", "batcat"), frozenset(("-l", "-r", "--line-range", "--language"))),
}
_TARGETS_LAST = frozenset("cp mv install ln".split())
_TARGETS_ALL = frozenset("rm touch tee".split())
_WRITERS = _TARGETS_LAST | _TARGETS_ALL | {"sed", "perl", "git"}
_CUTS = frozenset(("sed", "head", "tail", "awk", "gawk"))
_AWK_RANGE = re.compile(r"NR\s*>=?\s*(\d{1,9})\D{1,8}NR\s*<=?\s*(\d{1,9})")
_RANGE = re.compile(r"(\d+)(?:,\s*(\d+|\$))?p")
_NO_PATH = re.compile(r"[|;<>()\n\"]|[,:]$|^[\d.,&]+$")
_FILE_NAME = re.compile(r"[^\s*?]*\.[A-Za-z]\w{0,9}")
_MAKES_BRANCH = frozenset(("-b", "-B", "--orphan", "-t", "--track"))
_SHOWN = re.compile(r"[\w./~^@-]+:(.+)")


def paths_read(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The files whose content the steps print as it is: `cat a | head`, not `cat a | grep b`."""
    found: list[str] = []
    start = 0
    for step in steps:
        if not step.piped:
            start = len(found)
        if step.program in _SHOWS or step.program == "git":
            found.extend(_shown_by(step))
        elif step.piped:
            del found[start:]
    return tuple(dict.fromkeys(found))


def paths_written(steps: tuple[Step, ...]) -> dict[str, str]:
    """The files the steps change, each with what is done to it: `written`, `edited`, `deleted` or `restored`."""
    found: dict[str, str] = {}
    for step in steps:
        if step.writes or step.program in _WRITERS:
            found.update((path, action) for path, action in _changed_by(step) if _may_be_file(path))
    return found


def _may_be_file(path: str) -> bool:
    return bool(path) and not path.endswith("/") and not path.startswith("/dev/") and not _NO_PATH.search(path)


def lines_of_steps(steps: tuple[Step, ...]) -> Lines | None:
    """The lines that `sed -n`, `head`, `tail` and `awk` leave of a file; None when nothing is left out."""
    found: Lines | None = None
    for step in steps:
        if step.program in _CUTS:
            found = _lines_of(step, found) or found
    return found


def _shown_by(step: Step) -> list[str]:
    if step.writes or "-i" in step.words:
        return []
    if step.program == "git":
        named = (_SHOWN.fullmatch(word) for word in step.words[2:] if "show" in step.words[:4])
        return [match.group(1) for match in named if match]
    words = _operands(step)
    return words[1:] if step.program in ("sed", "awk", "gawk") and not _has_script_option(step) else words


def _has_script_option(step: Step) -> bool:
    return "-e" in step.words or ("-f" in step.words and step.program != "perl")


def _operands(step: Step) -> list[str]:
    valued = _VALUED.get(step.program, frozenset())
    found: list[str] = []
    skip = False
    for word in step.words[1:]:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            skip = word in valued
        elif word:
            found.append(word)
    return found


def _changed_by(step: Step) -> Iterator[tuple[str, str]]:
    if step.writes:
        yield step.writes, "written"
    program, words = step.program, step.words
    if program == "git":
        yield from _changed_by_git(words)
        return
    plain = [word.rstrip("/") if program == "rm" else word for word in words[1:] if not word.startswith("-")]
    if program in _TARGETS_LAST and len(plain) > 1:
        yield from ((source, "deleted") for source in plain[:-1] if program == "mv")
        yield from ((target, "written") for target in _targets(plain[:-1], plain[-1]))
    elif program in _TARGETS_ALL:
        yield from ((path, "deleted" if program == "rm" else "written") for path in plain)
    elif program in ("sed", "perl") and any(_edits_in_place(word, program) for word in words[1:4]):
        files = _operands(step)[0 if _has_script_option(step) else 1 :]
        # What is left of a script with a quotation mark in it are words; of several only those count that end as files.
        yield from ((path, "edited") for path in files if len(files) == 1 or _FILE_NAME.fullmatch(path))


def _targets(sources: Sequence[str], target: str) -> list[str]:
    """The files that `cp a target` makes: below the target when it is a folder."""
    if len(sources) > 1 or target.endswith("/") or target in (".", ".."):
        return [posixpath.join(target, posixpath.basename(source)) for source in sources]
    return [target]


def _changed_by_git(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    plain = [word for word in words[1:] if not word.startswith("-")]
    named = list(words[words.index("--") + 1 :]) if "--" in words else plain[1:]
    action = plain[0] if plain else ""
    if (action == "restore" and ("--staged" not in words or "--worktree" in words)) or (
        action == "checkout" and not _MAKES_BRANCH.intersection(words)
    ):
        yield from ((path, "restored") for path in named if "--" in words or _FILE_NAME.fullmatch(path))
    elif action == "rm" and "--cached" not in words:
        yield from ((path, "deleted") for path in named)
    elif action == "mv" and len(named) > 1:
        yield from ((source, "deleted") for source in named[:-1])
        yield from ((target, "written") for target in _targets(named[:-1], named[-1]))


def _edits_in_place(word: str, program: str) -> bool:
    return word.startswith(("-i", "--in-place")) or (program == "perl" and re.fullmatch(r"-\w*i\w*", word) is not None)


def _lines_of(step: Step, before: Lines | None) -> Lines | None:
    program, words = step.program, step.words
    if program == "sed":
        return _printed_by_sed(words) if "-n" in words else None
    if program in ("awk", "gawk"):
        found = _AWK_RANGE.search(" ".join(words)[:400])
        return (int(found.group(1)), int(found.group(2))) if found else SOMEWHERE
    return _lines_of_end(step, before) if step.piped or _operands(step) else None


def _lines_of_end(step: Step, before: Lines | None) -> Lines:
    """What `head` or `tail` leaves of a file, or of the lines before it in a pipe."""
    count = _count_in(step.words)
    if step.program == "head":
        return _first_lines(_number(count or "10"), before)
    if count.startswith("+"):
        return (max(_number(count), 1), None)
    if before is not None and before[1] is not None:
        return (max(before[0], before[1] - _number(count or "10") + 1), before[1])
    return SOMEWHERE


def _printed_by_sed(words: tuple[str, ...]) -> Lines:
    found = [_RANGE.findall(word) for word in words[1:] if word.rstrip(";}").endswith("p")]
    ranges = [each for group in found for each in group]
    if not ranges:
        return SOMEWHERE
    ends = [_number(last or first) for first, last in ranges if last != "$"]
    return min(_number(first) for first, _ in ranges), max(ends) if len(ends) == len(ranges) else None


def _count_in(words: tuple[str, ...]) -> str:
    for at, word in enumerate(words):
        if word in ("-n", "--lines") and at + 1 < len(words):
            return words[at + 1]
        if re.fullmatch(r"-n?\+?\d+", word):
            return word.lstrip("-n")
    return ""


def _number(digits: str) -> int:
    found = re.search(r"\d{1,9}", digits)
    return int(found.group()) if found else 1


def _first_lines(count: int, before: Lines | None) -> Lines:
    if before is None:
        return 1, count
    first, last = before
    return first, min(last, first + count - 1) if last is not None else first + count - 1
