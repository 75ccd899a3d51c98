"""What must be exact in prose: paths, URLs, code, identifiers, numbers and ids. None of them may be made up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from context_compactor.messages.references import ID

_URL = re.compile(r"\b(?:https?|ftp|wss?|file|git|ssh)://[^\s<>\"'`\u3000-\u303f\uff00-\uffef]+")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\[\w.\\-]+")
_PATH = re.compile(
    r"(?<![\w/.~:@-])(?:~|\.{1,2})?/?[\w@+-][\w.@+-]*(?:/[\w.@+-]+)+/?|(?<![\w/.:~])(?:~|\.{0,2})/[\w.@+-]+(?:/[\w.@+-]+)*/?"
)
_FILE = re.compile(
    r"(?<![\w./@-])[\w@-][\w.@-]*\.(?:py|pyi|ipynb|[cm]?[jt]sx?|vue|svelte|rs|go|java|kt|kts|scala|rb|php|cs|fs|swift|mm?"
    r"|c|h|cc|hh|cpp|hpp|cxx|zig|lua|pl|r|jl|ex|exs|erl|hs|ml|clj|sh|bash|zsh|fish|ps1|bat|sql|md|rst|txt|adoc|tex|ya?ml"
    r"|toml|json[cl5]?|xml|html?|css|s[ac]ss|less|ini|cfg|conf|env|lock|csv|tsv|log|proto|graphql|tf|gradle|cmake|mk"
    r"|dockerfile|db|sqlite|pem|key|diff|patch|zip|tar|gz|png|jpe?g|svg|gif|pdf|whl|jar|wasm|so|dll|exe|bin)\b(?![\w/-])"
)
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,300})\1(?!`)")
_EXTENSION = re.compile(r"\.\w{1,10}/?$")
_END = ".,;:!?)]}>*_'\"\u2026"
_WORD = re.compile(r"\w{2,}")
# A name that somebody made for a program: with an underline or a capital within.
_NAME = re.compile(r"(?<![\w$])[A-Za-z_$]\w*(?:_\w+|[a-z0-9][A-Z]\w*)(?!\w)")
_NUMBER = re.compile(r"(?<![\w.,#-])\d[\d,]*(?:\.\d+)*%?(?![\w.]*\w)|(?<=#)\d+")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
# Below this a number may be a count that the writer made.
_COUNTED = 100
# Names of products that are written so whether the source names them or not.
_COMMON = frozenset(
    "javascript typescript github gitlab postgresql mysql sqlite macos ios openai graphql devops".split()
)


def urls_in(text: str) -> list[str]:
    """The URLs of a text, without the punctuation behind them."""
    return list(dict.fromkeys(url.rstrip(_END) for url in _URL.findall(text)))


def paths_in(text: str) -> list[str]:
    """The paths and file names of a text. `and/or`, `read/write` and the like are none."""
    rest = _URL.sub(" ", text)
    found = (path.rstrip(_END) for pattern in (_WINDOWS, _PATH, _FILE) for path in pattern.findall(rest))
    return list(dict.fromkeys(path for path in found if _is_path(path)))


def _is_path(path: str) -> bool:
    if "/" not in path:
        return len(path) > 2
    steps = [step for step in path.split("/") if step]
    is_rooted = path.startswith(("/", "~/", "./", "../")) and any(len(step) > 1 for step in steps)
    return any(map(str.isalpha, path)) and (is_rooted or bool(_EXTENSION.search(path)))


def code_in(text: str) -> list[str]:
    """What stands between backticks."""
    return list(dict.fromkeys(code for _, code in _CODE.findall(text) if code.strip()))


class Origin:
    """The text that exact things must come from."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._small = text.lower()
        self._words = set(_WORD.findall(self._small))
        self._numbers = {number.replace(",", "") for number in _DIGITS.findall(text)}

    def invented(self, text: str) -> Iterator[str]:
        """Every path, URL, piece of code, identifier and number of a text that did not come from here."""
        yield from (url for url in urls_in(text) if url not in self._text)
        yield from (path for path in paths_in(text) if not self.has_path(path))
        yield from (code for code in code_in(text) if not self.has_code(code))
        rest = _CODE.sub(" ", _URL.sub(" ", ID.sub(" ", text)))
        yield from (name for name in names_in(rest) if not self.has_name(name))
        yield from (number for number in numbers_in(rest) if not self.has_number(number))

    def has_path(self, path: str) -> bool:
        """Whether a path stands here: as it is, by its end, or as a folder and a file that are both named."""
        bare = path.rstrip("/").removeprefix("./")
        if bare in self._text:
            return True
        folder, _, name = bare.rpartition("/")
        if not folder and name in self._text:
            return True
        steps = [step for step in bare.split("/") if step]
        if len(steps) > 2 and "/".join(steps[-2:]) in self._text and all(step in self._text for step in steps):
            return True
        return bool(folder) and folder.strip("/") in self._text and name in self._text

    def has_code(self, code: str) -> bool:
        """Whether every word of some code stands here: it may be told with less in its brackets than it had."""
        return self._words.issuperset(_WORD.findall(code.lower()))

    def has_name(self, name: str) -> bool:
        """Whether an identifier stands here, in whatever letters."""
        small = name.lower().strip("_")
        return small in self._small or small in _COMMON or small.replace("_", "") in self._small

    def has_number(self, number: str) -> bool:
        """Whether a number stands here; the writer may have counted what is small and whole."""
        bare = number.rstrip("%")
        is_whole = not number.endswith("%")
        return bare.replace(",", "") in self._numbers or all(
            part in self._numbers or (is_whole and part.isdecimal() and int(part) < _COUNTED)
            for part in bare.split(",")
        )


def names_in(text: str) -> list[str]:
    """The identifiers of a text that look like nothing else."""
    return list(dict.fromkeys(_NAME.findall(text)))


def numbers_in(text: str) -> list[str]:
    """The numbers of a text that stand alone."""
    return list(dict.fromkeys(number.rstrip(",") for number in _NUMBER.findall(text)))


def references_in(text: str) -> set[str]:
    """The ids that a text names."""
    return set(ID.findall(text))
