"""Shell command lines: the simple commands they run, and the files these read and write."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

# A word, a redirection, or what ends a simple command. Blanks and whatever else is odd fall between matches.
_TOKEN = re.compile(
    r"(?:(?!\d?[<>])(?:[^\s'\"\\|&;<>()`$]+|\$(?!')|'[^']*'?|\$'[^'\\]*(?:\\.[^'\\]*)*'?"
    r"|\"[^\"\\]*(?:\\.[^\"\\]*)*\"?|\\[^\n]))+"
    r"|(?:\d|&)?(?:>>|>\||>&|>|<<<|<<-?|<)"
    r"|&&|\|\||[;\n&()`|]",
    re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1[^\n]*\n")
_ENDS = frozenset(("&&", "||", ";", "\n", "&", "(", ")", "`", "|"))
_INTO_FILE = frozenset((">", ">>", ">|", "1>", "1>>", "&>", "&>>"))
_REDIRECTS = _INTO_FILE | frozenset(("<", "<<", "<<-", "<<<", ">&", "1>&", "2>", "2>>", "2>&", "0<"))
_ESCAPES = re.compile(r"\\([\"\\$`])")
_QUOTES = re.compile(r"['\"]|\\(?=.)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_COMMENT = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_LAST_CHARACTER = 2000

# Words that stand in front of the command that matters.
_PREFIXES = frozenset(
    "do then else if while until ! { time sudo nohup command exec builtin env nice stdbuf timeout gtimeout npx bunx "
    "pnpx xargs rtk doas caffeinate".split()
)
_RUNNERS = frozenset("uv poetry pipenv pdm rye hatch bundle mise npm pnpm yarn bun direnv".split())
_SHELLS = frozenset("bash sh zsh dash ksh fish".split())


class ShellStep(Struct, frozen=True):
    """One simple command. `piped`: it reads what the step before it printed; `writes`: the file its output goes to."""

    program: str
    words: tuple[str, ...]
    piped: bool = False
    writes: str = ""


def split_command(command: str) -> tuple[ShellStep, ...]:
    """The simple commands of a command line in order, without prefixes such as `env A=b`, `timeout 5` or `bash -lc`."""
    found: list[ShellStep] = []
    for step in _scan(command):
        inner = _script_of(step) if step.program in _SHELLS else None
        found.extend((step,) if inner is None else _scan(inner))
    return tuple(found)


def is_one_chain(command: str) -> bool:
    """Whether the exit code of a command line is that of all its steps: there is one, or `&&` joins them."""
    tokens = _tokens(_without_heredocs(command) if "<<" in command else command)
    return len(command) < _LAST_CHARACTER and not any(token in _ENDS and token != "&&" for token in tokens)


def heredoc_in(command: str, path: str) -> str:
    """The text that a command writes into a file by a heredoc; empty when it does not."""
    for opening in _HEREDOC.finditer(command) if "<<" in command else ():
        line = command[command.rfind("\n", 0, opening.start()) + 1 : opening.end()]
        if path in line:
            end = _end_of_heredoc(command, opening.end(), opening.group(2))
            return command[opening.end() : end].removesuffix(opening.group(2))
    return ""


def _script_of(step: ShellStep) -> str | None:
    short = ((option, value) for option, value in pairwise(step.words) if option.startswith("-") and option[1:2] != "-")
    return next((value for option, value in short if option.endswith("c")), None)


def _scan(command: str) -> Iterator[ShellStep]:
    text = _without_heredocs(command) if "<<" in command else command
    words: list[str] = []
    piped, writes, redirect = False, "", ""
    for token in _tokens(text):
        if token in _ENDS:
            if words or writes:
                yield _make_step(words, piped, writes)
            words, writes, redirect, piped = [], "", "", token == "|"
        elif redirect:
            writes = _unquote(token) if redirect in _INTO_FILE else writes
            redirect = ""
        elif token in _REDIRECTS:
            redirect = token
        else:
            words.append(_unquote(token))
    if words or writes:
        yield _make_step(words, piped, writes)


def _make_step(words: list[str], piped: bool, writes: str) -> ShellStep:
    bare = _without_prefixes(words)
    return ShellStep(bare[0].rpartition("/")[2] if bare else "", tuple(bare), piped, writes)


def _without_heredocs(command: str) -> str:
    kept: list[str] = []
    at = 0
    while opening := _HEREDOC.search(command, at):
        kept.append(command[at : opening.end()])
        at = _end_of_heredoc(command, opening.end(), opening.group(2))
    return "".join((*kept, command[at:]))


def _end_of_heredoc(command: str, at: int, delimiter: str) -> int:
    if command.startswith(delimiter + "\n", at):
        return at + len(delimiter)
    end = command.find(f"\n{delimiter}\n", at - 1)
    if end < 0 and not command.endswith("\n" + delimiter):
        return len(command)
    return end + 1 + len(delimiter) if end >= 0 else len(command)


def _tokens(text: str) -> list[str]:
    head = text[:_LAST_CHARACTER]
    tokens: list[str] = _TOKEN.findall(_COMMENT.sub("", head) if "#" in head else head)
    return tokens


def _unquote(word: str) -> str:
    first = word[0]
    if len(word) > 1 and first == word[-1] and first in "'\"" and word.count(first) == 2:
        inner = word[1:-1]
        return _ESCAPES.sub(r"\1", inner) if first == '"' and "\\" in inner else inner
    return _QUOTES.sub("", word) if "'" in word or '"' in word or "\\" in word else word


def _without_prefixes(words: list[str]) -> list[str]:
    at, size = 0, len(words)
    while at < size:
        word = words[at]
        if word in _PREFIXES:
            at = _after_options(words, at + 1, word)
        elif word in _RUNNERS and at + 1 < size and words[at + 1] in ("run", "exec") and _runs_anything(words, at):
            at = _after_options(words, at + 2, word)
        elif "=" in word and _ASSIGNMENT.match(word):
            at += 1
        else:
            break
    return words[at:] if at else words


def _runs_anything(words: list[str], at: int) -> bool:
    """`uv run X` and `npm exec X` run X; `npm run X` and `mise run X` run a script of the project."""
    return words[at + 1] == "exec" or words[at] not in ("npm", "pnpm", "yarn", "bun", "mise")


def _after_options(words: list[str], at: int, prefix: str) -> int:
    while at < len(words) and words[at].startswith("-"):
        at += 1
    has_value = at < len(words) and (words[at] == "{}" or words[at].isdigit())
    return at + 1 if prefix in ("timeout", "gtimeout") or (prefix == "xargs" and has_value) else at


# First and last line; the last is None up to the end, and (0, None) is a part whose place cannot be told.
LineRange = tuple[int, int | None]
UNKNOWN_RANGE: LineRange = (0, None)

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


def paths_read(steps: tuple[ShellStep, ...]) -> tuple[str, ...]:
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


def paths_written(steps: tuple[ShellStep, ...]) -> dict[str, str]:
    """The files the steps change, each with what is done to it: `written`, `edited`, `deleted` or `restored`."""
    found: dict[str, str] = {}
    for step in steps:
        if step.writes or step.program in _WRITERS:
            for path, action in _changed_by(step):
                if path and not path.endswith("/") and not path.startswith("/dev/") and not _NO_PATH.search(path):
                    found[path] = action
    return found


def lines_of_steps(steps: tuple[ShellStep, ...]) -> LineRange | None:
    """The lines that `sed -n`, `head`, `tail` and `awk` leave of a file; None when nothing is left out."""
    found: LineRange | None = None
    for step in steps:
        if step.program in _CUTS:
            found = _lines_of(step, found) or found
    return found


def _shown_by(step: ShellStep) -> list[str]:
    if step.writes or "-i" in step.words:
        return []
    if step.program == "git":
        named = (_SHOWN.fullmatch(word) for word in step.words[2:] if "show" in step.words[:4])
        return [match.group(1) for match in named if match]
    words = _operands(step)
    return words[1:] if step.program in ("sed", "awk", "gawk") and not _has_script_option(step) else words


def _has_script_option(step: ShellStep) -> bool:
    return "-e" in step.words or ("-f" in step.words and step.program != "perl")


def _operands(step: ShellStep) -> list[str]:
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


def _changed_by(step: ShellStep) -> Iterator[tuple[str, str]]:
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


def _lines_of(step: ShellStep, before: LineRange | None) -> LineRange | None:
    program, words = step.program, step.words
    if program == "sed":
        return _printed_by_sed(words) if "-n" in words else None
    if program in ("awk", "gawk"):
        found = _AWK_RANGE.search(" ".join(words)[:400])
        return (int(found.group(1)), int(found.group(2))) if found else UNKNOWN_RANGE
    return _lines_of_end(step, before) if step.piped or _operands(step) else None


def _lines_of_end(step: ShellStep, before: LineRange | None) -> LineRange:
    """What `head` or `tail` leaves of a file, or of the lines before it in a pipe."""
    count = _count_in(step.words)
    if step.program == "head":
        first, last = before or (1, None)
        end = first + _number(count or "10") - 1
        return first, end if last is None else min(last, end)
    if count.startswith("+"):
        return (max(_number(count), 1), None)
    if before is not None and before[1] is not None:
        return (max(before[0], before[1] - _number(count or "10") + 1), before[1])
    return UNKNOWN_RANGE


def _printed_by_sed(words: tuple[str, ...]) -> LineRange:
    found = [_RANGE.findall(word) for word in words[1:] if word.rstrip(";}").endswith("p")]
    ranges = [each for group in found for each in group]
    if not ranges:
        return UNKNOWN_RANGE
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


_SCRIPT_ARGUMENT = r"\(\s*(?:'([^'\n]{1,300})'|\"([^\"\n]{1,300})\"|([A-Za-z_]\w*))\s*"
# Each begins with the letters that it looks for, which makes the search many times faster.
_SCRIPT_WRITES = (
    re.compile(rf"open{_SCRIPT_ARGUMENT},\s*(?:mode\s*=\s*)?['\"](?:[wax]|r\+)"),
    re.compile(rf"writeFile(?:Sync)?{_SCRIPT_ARGUMENT},"),
    re.compile(rf"Path{_SCRIPT_ARGUMENT}\)\.write_(?:text|bytes)\("),
)
_WRITTEN = re.compile(r"\.write_(?:text|bytes)\(")
_LAST_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_SCRIPT_ASSIGNMENT = (
    r"^[ \t]*(?:const |let |var )?{}\s*(?::\s*\w+\s*)?=\s*(?:\w+\.)?(?:Path\(\s*)?['\"]([^'\"\n]{{1,300}})['\"]"
)
_SCRIPT_SIGNS = ("open(", ".write_", "writeFile")
_SCRIPT_PROGRAMS = frozenset(("python", "python3", "node", "bun", "deno", "ruby", "tsx", "py"))
_MOST_TEXT = 40_000


def script_paths(command: str, steps: tuple[ShellStep, ...]) -> tuple[str, ...]:
    """The files that scripts in a command write, as far as they are named and the command runs a script."""
    if not any(sign in command for sign in _SCRIPT_SIGNS) or not any(is_script_run(step) for step in steps):
        return ()
    return paths_in_script(command)


def is_script_run(step: ShellStep) -> bool:
    """Whether a step runs a script of a general language."""
    return step.program in _SCRIPT_PROGRAMS or step.program.startswith("python3.")


def paths_in_script(text: str) -> tuple[str, ...]:
    """The files a script opens for writing, by the names that stand in it."""
    text = text[:_MOST_TEXT]
    if not any(sign in text for sign in _SCRIPT_SIGNS):
        return ()
    found = [match.groups() for pattern in _SCRIPT_WRITES for match in pattern.finditer(text)]
    for match in _WRITTEN.finditer(text):
        variable = _LAST_NAME.search(text[max(0, match.start() - 60) : match.start()])
        found += [(None, None, variable[0])] if variable else []
    paths = (first or second or _assigned_path(text, variable) for first, second, variable in found)
    return tuple(dict.fromkeys(filter(None, paths)))


def _assigned_path(text: str, variable: str) -> str:
    """The path that a script gives a name to."""
    given = re.search(_SCRIPT_ASSIGNMENT.format(re.escape(variable)), text, re.MULTILINE)
    return given[1] if given else ""
