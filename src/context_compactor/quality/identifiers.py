"""The harness' own notion of an identifier: paths, symbols, URLs, ids, error codes and long numbers."""

from __future__ import annotations

import re
from functools import lru_cache

_CANDIDATE = re.compile(r"https?://[^\s\"'`<>()\[\]{}|\\]{4,300}|[\w~./#@-][\w./:@~+#-]{2,250}")
_SYMBOL = re.compile(r"[A-Za-z]\w*_\w+|_\w{3,}|[a-z]+[a-z0-9]*[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]+\w*")
_NUMBER = re.compile(r"(?!\d*000$)\d{4,}")
_HASH = re.compile(r"(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f]{6,64}(?:-[0-9a-f]{4,12}){0,4}")
_CODE = re.compile(r"[A-Z]{1,6}-?\d{2,6}|E[A-Z]{4,}|(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{5,12}|#\d{2,}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*){1,8}")
_PATH = re.compile(r"(?:~|\.{1,2})?/?[\w.@+~#-]+(?:/[\w.@+~#:-]+)+/?|/[\w.@+-]{3,}")
_FILE = re.compile(r"[\w@+-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,5}")
_LINE = re.compile(r"(?::\d+){1,2}$")
_PARTS = re.compile(r"[./:@+#~-]+")
_EDGES = ".,:;#@+~-"
_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "a.m", "p.m"})


def identifiers(text: str) -> set[str]:
    """Every identifier of a text, each in its longest form and in the shorter forms it contains."""
    found: set[str] = set()
    for candidate in set(_CANDIDATE.findall(text)):
        found.update(forms(candidate))
    return found


def longest_identifiers(text: str) -> list[tuple[str, ...]]:
    """The forms of each identifier of a text in order, longest first."""
    return [found for candidate in dict.fromkeys(_CANDIDATE.findall(text)) if (found := forms(candidate))]


@lru_cache(maxsize=1 << 18)
def forms(candidate: str) -> tuple[str, ...]:
    """The identifiers one run of characters holds: itself, the ends of a path, symbols inside it."""
    rooted = candidate.startswith(("http", "./", "../", "~/"))
    text = candidate.rstrip(_EDGES) if rooted else candidate.strip(_EDGES)
    text = _LINE.sub("", text).rstrip("/")
    if len(text) < 4 or text.lower() in _ABBREVIATIONS:
        return ()
    if text.startswith("http"):
        return (text,)
    found = _path_ends(text) if "/" in text else [text] if _is_identifier(text) else []
    found.extend(part for part in _PARTS.split(text) if len(part) >= 4 and _is_word(part))
    return tuple(dict.fromkeys(found))


def _path_ends(path: str) -> list[str]:
    """A path goes by its last two names: agents write the same file relative to here, to the root, to home."""
    if not _is_path(path):
        return []
    names = path.strip("/").split("/")
    return [end for end in ("/".join(names[-2:]), names[-1]) if len(end) >= 4 and ("/" in end or _is_identifier(end))]


def _is_word(text: str) -> bool:
    return any(pattern.fullmatch(text) for pattern in (_SYMBOL, _NUMBER, _HASH, _CODE))


def _is_identifier(text: str) -> bool:
    if "/" in text:
        return _is_path(text)
    return _is_word(text) or bool(_DOTTED.fullmatch(text)) or bool(_FILE.fullmatch(text))


def _is_path(text: str) -> bool:
    if not _PATH.fullmatch(text):
        return False
    names = text.strip("/").split("/")
    rooted = text.startswith(("/", "~", "./", "../"))
    return rooted or len(names) > 2 or "." in names[-1] or any(map(_is_word, names))
