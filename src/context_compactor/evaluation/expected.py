"""What the future of a conversation needs from its history: identifiers, copied wording, failures and questions."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from context_compactor.evaluation.corpus import HistoryCut, RecordedConversation, history_cuts
from context_compactor.evaluation.messages import FlatPart, RawMessage, origin, read_message, read_messages
from context_compactor.evaluation.search import Search

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


COMMAND = 60
ERROR = 60

_EXIT = re.compile(
    r"(?:^|\n)(?:Exit code:? |<returncode>|Process exited with code |exit status |\[exit code:? )(-?\d+)", re.IGNORECASE
)
_TELLING = re.compile(
    r"not exist|has not"
    r"|error|exception|fail|fatal|panic|denied|not found|no such|cannot|can't|unable|undefined|invalid|unexpected"
    r"|refused|timed? ?out|missing|unknown|rejected|conflict|aborted|killed",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^(?:Exit code|<returncode>|</?output|<output_|Chunk ID|Wall time|Process exited|Original token|Output:)"
)
_TAG = re.compile(r"</?[a-z_]{1,30}>")
_LOOK = 400
_NOT_RUN = "Sibling tool call errored"


class FailedCall(Struct, frozen=True):
    """A failed call: the start of what it ran, and the lines of its output that tell why."""

    command: str
    lines: tuple[str, ...]


def failures(history: Sequence[FlatPart]) -> list[FailedCall]:
    """The failed calls of a history whose output says something, each once."""
    calls = {piece.call_id: piece for piece in history if piece.kind == "call"}
    found: dict[FailedCall, None] = {}
    for piece in history:
        call = calls.get(piece.call_id)
        if piece.kind == "result" and call and has_failed(piece):
            failure = FailedCall(_command(call), _telling(piece.text))
            if failure.command and failure.lines:
                found[failure] = None
    return list(found)


def has_failed(result: FlatPart) -> bool:
    """Whether a result is marked as an error or reports an exit code other than 0."""
    code = _EXIT.search(result.text[:_LOOK])
    if _NOT_RUN in result.text[:_LOOK]:
        return False
    return result.failed or (code is not None and code.group(1) != "0")


def squeeze(text: str) -> str:
    """The text with white space as single blanks."""
    return " ".join(text.split())


def without_tags(text: str) -> str:
    """The text without the simple tags that a client puts around output."""
    return _TAG.sub("", text)


def _command(call: FlatPart) -> str:
    return squeeze(without_tags(next(iter(call.values), "")))[:COMMAND]


def _telling(text: str) -> tuple[str, ...]:
    """The first and last line that name an error; indented ones, such as the code in a traceback, come second."""
    lines = [without_tags(line).rstrip() for line in text.splitlines()[:5000] if not _FRAME.match(line)]
    lines = [line for line in lines if len(line.strip()) > 3]
    named = [line for line in lines if _TELLING.search(line[:300])]
    telling = [line for line in named if not line[0].isspace()] or named or lines[-1:]
    ends = (telling[0], telling[-1]) if telling else ()
    return tuple(dict.fromkeys(squeeze(line)[:ERROR] for line in ends))


NEXT_CALLS = 10
NEAR = 200
MOST_LINES = 60
FEWEST_WORDS = 3

_NAME_WORD = re.compile(r"\w{2,}")
_JOINED = string.ascii_letters + string.digits + "_./~@+-"


class RecalledName(Struct, frozen=True):
    """A wanted identifier, the words it stood with in each line of H, and who wrote those lines.

    `last` is how far through H it stood last, 0 to 1.
    """

    text: str
    company: tuple[frozenset[str], ...]
    origins: tuple[str, ...]
    last: float


def recalled_names(
    history: Sequence[FlatPart], future: Sequence[FlatPart], common: frozenset[str]
) -> tuple[list[str], list[tuple[int, ...]]]:
    """The identifiers that F takes from H, and for each call that needs some, which.

    An identifier counts when the agent writes it, in words or arguments, before any result or user message
    of F shows it. It stood in H, not in the system prompt, and is not common to many projects.
    """
    known = identifiers(_joined(history, instructions=False))
    barred = common | identifiers(_joined(history, instructions=True))
    shown: set[str] = set()
    order: dict[str, int] = {}
    calls: list[tuple[int, ...]] = []
    for piece in future:
        if piece.kind in ("result", "user", "system"):
            shown |= identifiers(piece.text)
            continue
        needed = [name for name in _recalled(piece, known) if name not in shown and name not in barred]
        places = tuple(order.setdefault(name, len(order)) for name in needed)
        if piece.kind == "call" and places:
            calls.append(places)
    return list(order), calls[:NEXT_CALLS]


def _joined(pieces: Sequence[FlatPart], *, instructions: bool) -> str:
    return "\n".join(piece.text for piece in pieces if (piece.kind == "system") is instructions)


def _recalled(piece: FlatPart, known: set[str]) -> list[str]:
    """The identifiers of a piece that stood in H, each in the longest form that did."""
    text = "\n".join(piece.values) if piece.kind == "call" else piece.text
    matches = (next((form for form in forms if form in known), None) for forms in longest_identifiers(text))
    return [name for name in dict.fromkeys(matches) if name]


def with_neighbours(name: str, history: Sequence[FlatPart]) -> RecalledName:
    """An identifier with the other words of the lines in which it stood; lines with hardly any do not count."""
    company: dict[frozenset[str], None] = {}
    origins: dict[str, None] = {}
    last = 0
    for index in range(len(history) - 1, -1, -1):
        piece = history[index]
        places = occurrences(name, piece.text, MOST_LINES) if piece.kind != "system" else []
        if places:
            last = last or index
            origins[origin(piece)] = None
        if len(company) < MOST_LINES:
            company.update((line_words(piece.text, start, name), None) for start in places)
    rich = tuple(words for words in company if len(words) >= FEWEST_WORDS)
    return RecalledName(name, rich[:MOST_LINES] or tuple(company), tuple(origins), last / len(history))


def is_bound(name: RecalledName, text: str) -> bool:
    """Whether a name stands within 200 characters of half the words it stood with in some line of H."""
    for start in occurrences(name.text, text):
        near = near_words(text, start, name.text)
        if any(2 * len(words & near) >= len(words) for words in name.company):
            return True
    return False


def occurrences(name: str, text: str, most: int = 200) -> list[int]:
    """Where a name stands in a text as a whole word."""
    found: list[int] = []
    start = text.find(name)
    while start >= 0 and len(found) < most:
        end = start + len(name)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() or before == "_" or after.isalnum() or after == "_"):
            found.append(start)
        start = text.find(name, end)
    return found


def line_words(text: str, start: int, name: str) -> frozenset[str]:
    """The other words of the line a name stands in, at most 200 characters away."""
    end = start + len(name)
    left = max(text.rfind("\n", max(0, start - NEAR), start) + 1, start - NEAR, 0)
    stop = text.find("\n", end, end + NEAR)
    return _words(text[left:start], text[end : stop if stop >= 0 else end + NEAR])


def near_words(text: str, start: int, name: str) -> frozenset[str]:
    """The other words at most 200 characters away from a name, whatever their line."""
    end = start + len(name)
    return _words(text[max(0, start - NEAR) : start], text[end : end + NEAR])


def _words(left: str, right: str) -> frozenset[str]:
    """The words of both sides, without the rest of the path or expression the name is a part of."""
    return frozenset(_NAME_WORD.findall(f"{left.rstrip(_JOINED)} {right.lstrip(_JOINED)}".lower()))


SPAN_WORDS = 5
EDIT_LINE = 20

_WORDING_WORD = re.compile(r"\w+")
_PATCH_LINE = re.compile(r"^[- ](?!--)(.*)$", re.MULTILINE)


class CopiedSpan(Struct, frozen=True):
    """A wanted piece of wording, who wrote it in H, and how far through H it stood last, 0 to 1."""

    text: str
    origins: tuple[str, ...]
    last: float


def spans_of(text: str) -> list[str]:
    """Every run of five words of a text: letters, digits and underscores, whatever stands between them."""
    words = _WORDING_WORD.findall(text)
    return [" ".join(words[start : start + SPAN_WORDS]) for start in range(len(words) - SPAN_WORDS + 1)]


def copied_spans(history: Sequence[FlatPart], future: Sequence[FlatPart]) -> list[CopiedSpan]:
    """Five-word runs of F's arguments that stood in H and that nothing in F had shown or used before."""
    asked: dict[str, None] = {}
    shown: set[str] = set()
    for piece in future:
        own = [span for value in piece.values for span in spans_of(value)]
        asked.update(dict.fromkeys(span for span in own if span not in shown))
        shown.update(own or spans_of(piece.text))
    return _in_history(asked, [(origin(piece), set(spans_of(piece.text))) for piece in history])


def _in_history(asked: Iterable[str], pieces: Sequence[tuple[str, set[str]]]) -> list[CopiedSpan]:
    wanted = set(asked)
    places: dict[str, dict[str, int]] = {}
    for index, (who, spans) in enumerate(pieces):
        for span in wanted & spans:
            places.setdefault(span, {})[who] = index
    return [_span(span, places[span], len(pieces)) for span in asked if span in places]


def _span(text: str, places: Mapping[str, int], count: int) -> CopiedSpan:
    return CopiedSpan(text, tuple(places), max(places.values()) / count)


def edited_lines(history: Sequence[FlatPart], future: Sequence[FlatPart]) -> list[CopiedSpan]:
    """Lines of the old text of F's edits that stood in H and that nothing in F had shown or used before."""
    asked: dict[str, None] = {}
    shown = ""
    for piece in future:
        asked.update(dict.fromkeys(line for line in old_lines(piece) if line not in shown))
        shown += "\n" + piece.text
    texts = [(origin(piece), piece.text) for piece in history]
    places = {line: {who: index for index, (who, text) in enumerate(texts) if line in text} for line in asked}
    return [_span(line, found, len(texts)) for line, found in places.items() if found]


def old_lines(piece: FlatPart) -> list[str]:
    """The lines of 20+ characters an edit expects to find: what it replaces, a patch's removed and context lines."""
    if piece.kind != "call":
        return []
    patches = (value for value in piece.values if "*** Begin Patch" in value)
    old = [*piece.replaced, *(match.group(1) for patch in patches for match in _PATCH_LINE.finditer(patch))]
    lines = (line.strip() for line in "\n".join(old).splitlines())
    return list(dict.fromkeys(line for line in lines if len(line) >= EDIT_LINE))


ANSWER_TOKENS = 2000
_LONGEST = 2000


class SearchQuestion(Struct, frozen=True):
    """One message of the agent without the identifiers it takes from memory, and which those are."""

    text: str
    names: tuple[int, ...]


def questions(future: Sequence[RawMessage], names: Sequence[str]) -> Iterator[SearchQuestion]:
    """One question for each message of the agent that first needs some of the names."""
    left = {name: index for index, name in enumerate(names)}
    for message in future:
        if message.get("role") != "assistant":
            continue
        text = "\n".join(piece.text for piece in read_message(message))
        there = sorted(left.keys() & identifiers(text), key=lambda name: (-len(name), name))
        if there:
            yield SearchQuestion(_without(text, there)[:_LONGEST], tuple(left.pop(name) for name in there))


def _without(text: str, names: Sequence[str]) -> str:
    for name in names:
        text = text.replace(name, " ")
    return text


def found_with_search(
    names: Sequence[str], kept: Sequence[bool], asked: Sequence[SearchQuestion], search: Search
) -> float | None:
    """The share of names that are in the context (`kept`) or in the answer to the question that needs them."""
    found = {index for index, there in enumerate(kept) if there}
    for question in asked:
        if not found.issuperset(question.names):
            answer = identifiers(search(question.text, ANSWER_TOKENS))
            found.update(index for index in question.names if names[index] in answer)
    return len(found) / len(names) if names else None


class WantedItems(Struct, frozen=True):
    """Everything one sample asks of a context.

    `calls` are the next ten calls that need something from memory: indexes into `names`.
    """

    names: tuple[RecalledName, ...]
    calls: tuple[tuple[int, ...], ...]
    spans: tuple[CopiedSpan, ...]
    edits: tuple[CopiedSpan, ...]
    failures: tuple[FailedCall, ...]
    questions: tuple[SearchQuestion, ...] = ()


def find_wanted(
    conversation: RecordedConversation, cut: HistoryCut, common: frozenset[str] = frozenset()
) -> WantedItems:
    """What F takes from H: names, calls, wording, edited lines, and the failures of H."""
    history = read_messages(cut.history(conversation))
    future = read_messages(cut.future(conversation))
    names, calls = recalled_names(history, future, common)
    return WantedItems(
        names=tuple(with_neighbours(name, history) for name in names),
        calls=tuple(calls),
        spans=tuple(copied_spans(history, future)),
        edits=tuple(edited_lines(history, future)),
        failures=tuple(failures(history)),
        questions=tuple(questions(cut.future(conversation), names)),
    )


class Sample(Struct, frozen=True):
    """One cut of one conversation and what its future wants."""

    conversation: RecordedConversation
    cut: HistoryCut
    wanted: WantedItems

    @property
    def id(self) -> str:
        """The conversation's id and the cut's label."""
        return f"{self.conversation.id}@{self.cut.label}"

    @property
    def history(self) -> list[RawMessage]:
        """What the agent knew at the cut."""
        return self.cut.history(self.conversation)


def samples_of(conversation: RecordedConversation, common: frozenset[str] = frozenset()) -> list[Sample]:
    """Every cut of a conversation; the `common` identifiers are not wanted."""
    return [Sample(conversation, cut, find_wanted(conversation, cut, common)) for cut in history_cuts(conversation)]
