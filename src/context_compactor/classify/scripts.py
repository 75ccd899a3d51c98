"""Which files a script writes: agents that have only a shell often edit by a few lines of Python or JavaScript."""

from __future__ import annotations

import re

from context_compactor.classify.shell import Step

_OPENED = r"open\(\s*(?:'([^'\n]{1,300})'|\"([^\"\n]{1,300})\"|([A-Za-z_]\w*))\s*,\s*(?:mode\s*=\s*)?['\"](?:[wax]|r\+)"
_MADE = (
    r"(?:Path\(\s*(?:'([^'\n]{1,300})'|\"([^\"\n]{1,300})\")\s*\)|\b([A-Za-z_]\w*))\.write_(?:text|bytes)\("
    r"|\bwriteFile(?:Sync)?\(\s*(?:'([^'\n]{1,300})'|\"([^\"\n]{1,300})\"|([A-Za-z_]\w*))\s*,"
)
_WRITES = re.compile(f"{_OPENED}|{_MADE}")
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
    found: list[str] = []
    for match in _WRITES.finditer(text) if any(sign in text for sign in _SIGNS) else ():
        groups = match.groups()
        path = next((groups[at] for at in (0, 1, 3, 4, 6, 7) if groups[at]), "")
        variable = groups[2] or groups[5] or groups[8]
        if variable:
            given = re.search(_GIVEN.format(re.escape(variable)), text, re.MULTILINE)
            path = given[1] if given else ""
        if path:
            found.append(path)
    return tuple(dict.fromkeys(found))
