"""A shell command line, read as the simple commands it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


class Step(Struct, frozen=True):
    """One simple command. `piped`: it reads what the step before it printed; `writes`: the file its output goes to."""

    program: str
    words: tuple[str, ...]
    piped: bool = False
    writes: str = ""


def split_steps(command: str) -> tuple[Step, ...]:
    """The simple commands of a command line in order, without prefixes such as `env A=b`, `timeout 5` or `bash -lc`."""
    found: list[Step] = []
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


def _script_of(step: Step) -> str | None:
    words = step.words
    return next((words[at + 1] for at, word in enumerate(words[:-1]) if _takes_script(word)), None)


def _takes_script(word: str) -> bool:
    return word.startswith("-") and not word.startswith("--") and word.endswith("c")


def _scan(command: str) -> Iterator[Step]:
    text = _without_heredocs(command) if "<<" in command else command
    words: list[str] = []
    piped, writes, redirect = False, "", ""
    for token in _tokens(text):
        if token in _ENDS:
            if words or writes:
                yield _step(words, piped, writes)
            words, writes, redirect, piped = [], "", "", token == "|"
        elif redirect:
            writes = _unquote(token) if redirect in _INTO_FILE else writes
            redirect = ""
        elif token in _REDIRECTS:
            redirect = token
        else:
            words.append(_unquote(token))
    if words or writes:
        yield _step(words, piped, writes)


def _step(words: list[str], piped: bool, writes: str) -> Step:
    bare = _bare(words)
    return Step(bare[0].rpartition("/")[2] if bare else "", tuple(bare), piped, writes)


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


def _bare(words: list[str]) -> list[str]:
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
    takes_value = prefix in ("timeout", "gtimeout") or (prefix == "xargs" and at < len(words) and _is_value(words[at]))
    return at + 1 if takes_value else at


def _is_value(word: str) -> bool:
    return word == "{}" or word.isdigit()
