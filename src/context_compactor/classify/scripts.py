"""Which files a script writes: agents that have only a shell often edit by a few lines of Python or JavaScript."""

from __future__ import annotations

import re

from context_compactor.classify.shell import Step

_NAMED = r"\(\s*(?:'([^'\n]{1,300})'|\"([^\"\n]{1,300})\"|([A-Za-z_]\w*))\s*"
# Each begins with the letters that it looks for, which makes the search many times faster.
_WRITES = tuple(
    map(
        re.compile,
        (
            rf"open{_NAMED},\s*(?:mode\s*=\s*)?['\"](?:[wax]|r\+)",
            rf"writeFile(?:Sync)?{_NAMED},",
            rf"Path{_NAMED}\)\.write_(?:text|bytes)\(",
        ),
    )
)
_WRITTEN = re.compile(r"\.write_(?:text|bytes)\(")
_LAST_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_GIVEN = r"^[ \t]*(?:const |let |var )?{}\s*(?::\s*\w+\s*)?=\s*(?:\w+\.)?(?:Path\(\s*)?['\"]([^'\"\n]{{1,300}})['\"]"
_SIGNS = ("open(", ".write_", "writeFile")
_PROGRAMS = frozenset(("python", "python3", "node", "bun", "deno", "ruby", "tsx", "py"))
_MOST_TEXT = 40_000


def paths_scripted(command: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """The files that scripts in a command write, as far as they are named and the command runs a script."""
    if not any(sign in command for sign in _SIGNS) or not any(is_script_run(step) for step in steps):
        return ()
    return paths_in_script(command)


def is_script_run(step: Step) -> bool:
    """Whether a step runs a script of a general language."""
    return step.program in _PROGRAMS or step.program.startswith("python3.")


def paths_in_script(text: str) -> tuple[str, ...]:
    """The files a script opens for writing, by the names that stand in it."""
    text = text[:_MOST_TEXT]
    if not any(sign in text for sign in _SIGNS):
        return ()
    found = [match.groups() for pattern in _WRITES for match in pattern.finditer(text)]
    for match in _WRITTEN.finditer(text):
        variable = _LAST_NAME.search(text[max(0, match.start() - 60) : match.start()])
        found += [(None, None, variable[0])] if variable else []
    paths = (first or second or _given(text, variable) for first, second, variable in found)
    return tuple(dict.fromkeys(filter(None, paths)))


def _given(text: str, variable: str) -> str:
    """The path that a script gives a name to."""
    given = re.search(_GIVEN.format(re.escape(variable)), text, re.MULTILINE)
    return given[1] if given else ""
