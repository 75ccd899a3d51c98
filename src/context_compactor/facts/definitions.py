"""Functions, classes, tests and sections in a piece of a file: what an edit adds, changes and removes by name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

ADDED, CHANGED, REMOVED = "+", "~", "\u2212"
_MODIFIERS = (
    r"(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|override|inline|unsafe"
    r"|declare|virtual|sealed|suspend|pub(?:\([^)\n]{1,40}\))?)[ \t]+){0,6}"
)
_DEFINES = (
    rf"{_MODIFIERS}(?:"
    r"(?:(def|class|function\*?|func|fn|interface|struct|enum|trait|impl|protocol|record|module|namespace|type)[ \t]+"
    r"(?:\([^)\n]{1,80}\)[ \t]*)?([A-Za-z_$](?:[\w$.]|::)*[?!]?)"
    r"(?=[ \t]*[<({:=\[;\n]|[ \t]+(?:struct|interface|extends|for)\b|$)"
    r"[ \t]*(\([^\n]{0,60}?\))?)"
    r"|(?:const|let|var)[ \t]+([A-Za-z_$][\w$]*)(?:[ \t]*:[^=\n]{1,80})?[ \t]*=[ \t]*(?:async[ \t]*)?"
    r"(?:\([^\n]{0,200}?\)|[\w$]+)(?:[ \t]*:[^=\n]{1,80})?[ \t]*=>"
    r"|(?:it|test|describe)(?:\.\w{1,12})?\([ \t]*['\"`]([^'\"`\n]{3,60})"
    r"|([A-Z][A-Z0-9_]{2,40})(?:[ \t]*:[^=\n]{1,60})?[ \t]*=(?!=)"
    r"|(?:CREATE|ALTER)[ \t]+TABLE[ \t]+(?:IF NOT EXISTS[ \t]+)?([\w.\"]+)"
    r")"
)
_CODE = re.compile(rf"^([ \t]*){_DEFINES}", re.MULTILINE)
_MARGIN = re.compile(rf"^(){_DEFINES}", re.MULTILINE)
_HEADING = re.compile(r"^()#{1,4} +([^\n]{2,60}?)[ \t]*#*$|^()([^\n]{2,60})\n[=~-]{4,}$", re.MULTILINE)
_TABLE = re.compile(r"^()\[+([^\[\]\n]{1,60})\]+[ \t]*$", re.MULTILINE)
_NUMBERED = re.compile(r"^[ \t]*\d{1,6}(?:→|\t|[:|-][ \t]?)")
_PROSE = (".md", ".mdx", ".rst", ".txt", ".adoc")
_KEYED = (".toml", ".ini", ".cfg", ".conf", ".json", ".yaml", ".yml", ".lock", ".html", ".css", ".svg", ".xml", ".csv")
_MOST_LINES = 100
_MOST_ANCHORS = 20
_SHORTEST_ANCHOR = 6


class DefinedParts:
    """A text cut at its definitions: `head` is what stands before the first of them."""

    def __init__(self, text: str, path: str, is_whole: bool = False) -> None:
        self.parts: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        pattern = _pattern(path)
        if is_whole and pattern is _CODE:  # of a whole file what stands at its margin is enough, without the constants
            found = [match for match in _MARGIN.finditer(text) if not match[7]]
        else:
            found = list(pattern.finditer(text))
        self.head = text[: found[0].start()] if found else text
        for at, match in enumerate(found):
            end = found[at + 1].start() if at + 1 < len(found) else len(text)
            name, label = _named(match)
            self.parts[name] = self.parts.get(name, "") + text[match.start() : end]
            self.labels.setdefault(name, label)


def compare(old: str, new: str, path: str, around: str = "", shown: Sequence[str] = ()) -> dict[str, str]:
    """What is added, changed and removed, each by the name to show for it.

    `around` is the definition in which the text stands that begins with none; if it is not known, it is looked for in
    what was `shown` of the file.
    """
    before, after = DefinedParts(old, path), DefinedParts(new, path, not old)
    found: dict[str, str] = {}
    for name, part in after.parts.items():
        if name not in before.parts:
            found[after.labels[name]] = ADDED
        elif part.rstrip() != before.parts[name].rstrip():
            found[name] = CHANGED
    found.update((name, REMOVED) for name in before.parts if name not in after.parts)
    if old and before.head.strip() != after.head.strip():
        # To look for it takes time, and matters where there is no other name.
        around = around or (_around(shown, before.head or old, path) if shown and not found else "")
        found = {around: CHANGED, **found} if around else found
    return found


def _around(shown: Sequence[str], part: str, path: str) -> str:
    """The definition in which a part of a shown file stands; empty when it cannot be told."""
    lines = [line for line in part.split("\n")[:_MOST_ANCHORS] if len(line.strip()) >= _SHORTEST_ANCHOR]
    for anchor in dict.fromkeys((*lines[:1], *lines[-1:])):
        for text in shown:
            at = text.find(anchor)
            name = _defined_above(text, at, len(anchor) - len(anchor.lstrip()), path) if at >= 0 else ""
            if name:
                return name
    return ""


def _defined_above(text: str, at: int, inner: int, path: str) -> str:
    """The last definition before a place that begins further left than `inner` characters."""
    pattern = _pattern(path)
    end = text.rfind("\n", 0, at)
    for _ in range(_MOST_LINES):
        if end < 0:
            break
        start = text.rfind("\n", 0, end) + 1
        line = text[start:end]
        end = start - 1
        if line[:8].lstrip()[:1].isdigit():
            line = _NUMBERED.sub("", line, count=1)
        if pattern is not _CODE or len(line) - len(line.lstrip()) < max(1, inner):
            match = pattern.match(line)
            if match:
                return _named(match)[0]
    return ""


def definition_in(line: str, path: str) -> str:
    """The name that a line defines; empty for any other line."""
    match = _pattern(path).match(line.strip())
    return _named(match)[0] if match else ""


def _pattern(path: str) -> re.Pattern[str]:
    end = posixpath.splitext(path)[1].lower()
    return _HEADING if end in _PROSE else _TABLE if end in _KEYED else _CODE


def _named(match: re.Match[str]) -> tuple[str, str]:
    """A definition's name, and how it is shown where it is new."""
    groups = match.groups()
    if match.re is not _CODE and match.re is not _MARGIN:
        name = next(filter(None, groups), "").strip()
        return name, name
    _, kind, name, arguments, arrow, test, constant, table = groups
    if test:
        return f'"{test}"', f'test "{test}"'
    if name:
        return name, f"{kind.rstrip('*')} {name}{arguments or ''}"
    return (arrow or constant or table or "",) * 2
