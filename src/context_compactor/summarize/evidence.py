"""What a model's answer is compared with: the text it was shown, the exact names in it, and the facts that must not
get lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from context_compactor.dialects.messages import Text, ToolResult
from context_compactor.dialects.record import RULES, TASK
from context_compactor.dialects.turns import REFERENCE_PATTERN, Turn, reference_id
from context_compactor.facts.calls import call_body
from context_compactor.facts.decisions import replies_through_tools
from context_compactor.facts.fact import Fact
from context_compactor.facts.outputs import mentions_failure
from context_compactor.facts.utterances import agent_utterances, sentences, user_utterances
from context_compactor.summarize.summary import Summary

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
_COMMON_PRODUCTS = frozenset(
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


class ExactSource:
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
        rest = _CODE.sub(" ", _URL.sub(" ", REFERENCE_PATTERN.sub(" ", text)))
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
        return small in self._small or small in _COMMON_PRODUCTS or small.replace("_", "") in self._small

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
    return set(REFERENCE_PATTERN.findall(text))


WORD = re.compile(r"\w+")
_CONTENT = re.compile(r"[^\W\d]\w{3,}")
# A cut within a quotation, and signs that are written in more than one way.
_CUT = re.compile(r"\s*(?:\[(?:…|\.\.\.)\]|…|\.\.\.)\s*")
_STRAIGHT = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "\u2018": "'", "\u2019": "'", "\u2013": "-", "\u2014": "-", "\u00a0": " "}
)
_MARKUP = re.compile(r"[`*_\"'\\]+")
_ENDS = ".,:;!? "
_EDGE = ' /"\u201c\u201d'
# Where a quotation may be cut: at a line break, or behind a sentence.
_JOINT = re.compile(r"( / |(?<=[.!?:]) )")
_STANDING = 0.5
_NEAR = 0.6
_WIDER = 2.5
_LONGEST = 300
_SHORT = 4
_LINE_NUMBER = re.compile(r"^\s*:?\d+(?::|→|\s)\s*")
_SPOKEN = 0.6
_TROUBLE = re.compile(
    r"fail|error|exception|panic|crash|broke|wrong|\bbug|cannot|can't|couldn't|unable|not (?:found|work|match|exist)"
    r"|n't (?:work|match|exist|compile|run)|refus|denied|reject|missing|invalid|undefined|timeout|timed out|conflict"
    r"|regress|abort|unexpected|unresolved|no such|problem|issue|fehler|échec|erreur|fallo|erro\b"
    r"|失败|错误|エラー|오류|ошибк",
    re.IGNORECASE,
)


class Objection(Struct, frozen=True):
    """Why a text, or a line of it, cannot stand as it is: a code for the report, words for whoever writes it again."""

    code: str
    words: str

    @property
    def advice(self) -> str:
        """The words for whoever writes it again, without the text that was objected to: it may be an order itself."""
        return self.words.partition(": ")[0] if self.code in _QUOTING else self.words


_QUOTING = ("tool_syntax", "role_mark", "frame", "continued", "refusal", "instruction", "unspoken", "hostile")


class Evidence:
    """What an answer is compared with. `shown` is all that the model saw of the conversation and of what came before.

    `earlier` is the record before it, and `last` the highest turn that a line may name. With `own_headings` the answer
    may have any headings. `asked` is the question, whose lines are no answer to it, `system` the agent's instructions.
    """

    def __init__(
        self,
        shown: str,
        turns: Sequence[Turn],
        *,
        language: str = "",
        facts: Iterable[Fact] = (),
        earlier: Summary | None = None,
        own_headings: bool = False,
        asked: str = "",
        system: str = "",
    ) -> None:
        self.source = shown
        self.turns = turns
        self.language = language
        self.facts = tuple(facts)
        self.earlier = earlier or Summary()
        self.own_headings = own_headings
        self.system = system
        self.asked = frozenset(plain_words(line) for line in asked.split("\n")) - {""}
        self.last = max((turn.number for turn in turns), default=0)

    @cached_property
    def origin(self) -> ExactSource:
        """Where exact things must come from."""
        return ExactSource(self.source)

    @cached_property
    def users(self) -> dict[int, str]:
        """The user's own words, by turn, with those that came through a tool."""
        found: dict[int, str] = {}
        for utterance in (*user_utterances(self.turns), *replies_through_tools(self.turns)):
            found[utterance.turn] = "\n".join(filter(None, (found.get(utterance.turn, ""), utterance.text)))
        return found

    @cached_property
    def user(self) -> QuotableText:
        """All that stands in the user's name, with what an earlier record quotes of the user, and the system text."""
        texts = [message.text for turn in self.turns for message in turn.messages if message.role == "user"]
        quoted = [entry.text for title in (TASK, RULES) for entry in self.earlier.sections.get(title, ())]
        story = [line.text for line in self.earlier.happened if line.voice == "user"]
        return QuotableText("\n".join((*texts, *self.users.values(), *quoted, *story, self.system)))

    @cached_property
    def passage(self) -> QuotableText:
        """All that was shown."""
        return QuotableText(self.source)

    @cached_property
    def said(self) -> str:
        """The words and calls of the user and the agent, without results."""
        words = [message.text for turn in self.turns for message in turn.messages if message.role != "tool"]
        calls = [call.arguments for turn in self.turns for message in turn.messages for call in message.calls]
        return "\n".join((*words, *calls, self.earlier.text))

    @cached_property
    def spoken(self) -> str:
        """The same as words alone."""
        return plain_words(self.said)

    @cached_property
    def results(self) -> str:
        """The results of calls, as words alone."""
        found = [part.text for turn in self.turns for _, _, _, part in turn.parts() if isinstance(part, ToolResult)]
        return plain_words("\n".join(found))

    @cached_property
    def user_sentences(self) -> list[tuple[str, set[str]]]:
        """What the user said, sentence by sentence, with the words of each."""
        return _sentences(self.users.values())

    @cached_property
    def agent_sentences(self) -> list[tuple[str, set[str]]]:
        """What the agent said, likewise."""
        return _sentences(utterance.text for utterance in agent_utterances(self.turns))

    @cached_property
    def refs(self) -> frozenset[str]:
        """The ids that a line may name."""
        return frozenset(references_in(self.source) | {fact.ref for fact in self.facts})

    def turn_of(self, words: str) -> int:
        """The turn in which the user said this; 0 when it was none of these turns."""
        return next((turn for turn, text in self.users.items() if QuotableText(text).verbatim(words)), 0)

    @cached_property
    def _lines(self) -> dict[str, str]:
        """Every line of the source without its indentation, with the line as it is."""
        return {" ".join(line.split()): line[1:] if line[:1] == " " else line for line in self.source.split("\n")}

    def line(self, words: str) -> str:
        """A line as it stands in the source, with its own indentation; nothing when it does not stand there."""
        wanted = " ".join(words.split())
        whole = self._lines.get(wanted)
        if whole is not None and len(wanted) > _SHORT:
            return whole.rstrip()
        return words.rstrip() if whole is not None or self.passage.verbatim(wanted) == wanted else ""

    def exact_lines(self, words: str) -> list[str]:
        """What stands in the source of a line that may join several, or have a line number before it."""
        whole = self.line(words)
        parts = [] if whole else [_LINE_NUMBER.sub("", part) for part in words.split(" · ")]
        return [whole] if whole else [quote for part in parts if len(part) > _SHORT and (quote := self.line(part))]

    def home(self, line: str) -> str:
        """The id of the newest turn that holds a line; nothing when none does."""
        wanted = " ".join(line.split())
        for turn in reversed(self.turns):
            texts = (part.text for _, _, _, part in turn.parts() if isinstance(part, (Text, ToolResult)))
            calls = (call_body(call) for message in turn.messages for call in message.calls)
            if any(wanted in " ".join(text.split()) for text in (*texts, *calls)):
                return reference_id("turn", turn.number)
        return ""

    def nearest(self, words: str, *, user_only: bool) -> str:
        """The sentence that somebody really said and that is nearest to these words; nothing when none is near."""
        wanted = words_of(words)
        known = self.user_sentences if user_only else [*self.user_sentences, *self.agent_sentences]
        best, most = "", 0.0
        for sentence, have in known:
            share = len(wanted & have) / len(wanted) if wanted else 0.0
            if share > most and len(have) <= _WIDER * len(wanted) + 2:
                best, most = sentence, share
        return best if most >= _NEAR and len(wanted) > 1 else ""

    def is_trouble(self, line: str) -> bool:
        """Whether what a line tells as a failure is spoken of as one in the conversation or the record before it."""
        wanted = content_words(line)
        return not wanted or any(len(wanted & have) >= min(2, len(wanted)) for have in self._troubles)

    def is_spoken_of(self, line: str) -> bool:
        """Whether most of what a line is about stands in the source."""
        wanted = content_words(line)
        known = sum(word in self.passage for word in wanted)
        return bool(wanted) and known >= _SPOKEN * len(wanted)

    @cached_property
    def _troubles(self) -> list[set[str]]:
        failures = [f"{fact.content} {fact.detail}" for fact in self.facts if fact.kind in ("failure", "error")]
        lines = dict.fromkeys(line[:_LONGEST] for line in self.source.split("\n") if _TROUBLE.search(line, 0, _LONGEST))
        return [content_words(text) for text in (*failures, *lines)]


class QuotableText:
    """A text in which quotations are looked up, whatever blanks, line breaks and kinds of quotation marks they have."""

    def __init__(self, text: str) -> None:
        self._flat = _level(text)
        self._small = self._flat.lower()

    @cached_property
    def _bare(self) -> str:
        return " ".join(_MARKUP.sub("", self._small).split())

    def __contains__(self, word: str) -> bool:
        return word in self._small

    def verbatim(self, words: str) -> str:
        """The words as they stand here, piece by piece between cuts; nothing when one of the pieces does not."""
        pieces = [piece.strip(_EDGE) for piece in _CUT.split(words) if any(map(str.isalnum, piece))]
        found = [(piece, self._piece(piece)) for piece in pieces]
        if not found or not all(quote for _, quote in found):
            return ""
        for piece, quote in found:
            words = words.replace(piece, quote, 1)
        return words

    def longest_verbatim(self, words: str) -> str:
        """The sentences of a quotation that stand here, with a mark where others were; nothing if these are few."""
        parts = [part for cut in _CUT.split(words) for part in _JOINT.split(cut)[::2]]
        found = [self.verbatim(part) for part in parts]
        if sum(map(len, found)) < _STANDING * len(words):
            return ""
        kept = [(at, part) for at, part in enumerate(found) if part]
        text = kept[0][1]
        for (before, _), (at, part) in pairwise(kept):
            text += f" / {part}" if at == before + 1 else f" … {part}"
        return text if kept[-1][0] == len(parts) - 1 else f"{text} …"

    def _piece(self, piece: str) -> str:
        for form in dict.fromkeys((piece, piece.replace(" / ", " "))):
            wanted = _level(form).strip(_ENDS)
            if wanted in self._flat:
                return piece
            at = self._small.find(wanted.lower())
            if at >= 0 and form == piece and len(self._small) == len(self._flat):
                return piece.replace(piece.strip(_ENDS), self._flat[at : at + len(wanted)], 1)
            bare = " ".join(_MARKUP.sub("", wanted.lower()).split())
            if at >= 0 or (len(bare) > 3 and bare in self._bare):
                return piece
        return ""


def _level(text: str) -> str:
    return " ".join(text.translate(_STRAIGHT).split())


def _sentences(texts: Iterable[str]) -> list[tuple[str, set[str]]]:
    found = dict.fromkeys(sentence for text in texts for sentence in sentences(text) if len(sentence) <= _LONGEST)
    return [(" ".join(sentence.split()), words_of(sentence)) for sentence in found]


def plain_words(text: str) -> str:
    """The words of a text with one blank between them, in small letters."""
    return " ".join(WORD.findall(text.lower()))


def words_of(text: str) -> set[str]:
    """The words of a text, each once, in small letters."""
    return set(WORD.findall(text.lower()))


def content_words(text: str) -> set[str]:
    """The longer words of a text, which say what it is about."""
    return set(_CONTENT.findall(text.lower())) - _COMMON_TERMS


_COMMON_TERMS = frozenset(
    "this that with from then than when have been were will would should could into again after before which there "
    "here turn open resolved given also only does done they them what your file line lines code agent user".split()
)


_OPEN = ("active", "blocked", "open")
_START = 40
_TOLD = 0.6
_FAILURE_TOLD = 0.5


class LostFact(Struct, frozen=True):
    """A fact that a text leaves out, and what is lost with it."""

    code: str
    fact: Fact


def is_open_item(fact: Fact) -> bool:
    """Whether a fact says that something is not finished."""
    return fact.kind == "blocker" or (fact.kind == "todo" and fact.status in _OPEN)


def find_losses(facts: Iterable[Fact], text: str) -> list[LostFact]:
    """The failures, decisions, unfinished points and paths that a text leaves out."""
    lines = LineIndex(text.split("\n"))
    return [lost for fact in facts if (lost := _find_loss(fact, lines))]


def _find_loss(fact: Fact, lines: LineIndex) -> LostFact | None:
    if fact.kind == "failure":
        return None if lines.failure(fact) else LostFact("lost_failure", fact)
    if fact.kind == "decision" and not fact.status:
        return None if lines.says(fact.content) else LostFact("lost_decision", fact)
    if is_open_item(fact):
        return None if lines.says(fact.content) else LostFact("lost_open_item", fact)
    exact = [*paths_in(fact.content), *urls_in(fact.content)]
    if fact.kind in ("file_state", "side_effect") and exact:
        return None if all(each in lines.text for each in exact) else LostFact("lost_path", fact)
    return None


class LineIndex:
    """Lines in which a fact is looked for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.text = "\n".join(lines)
        self._flat = " ".join(self.text.split()).lower()
        self._lines = [words_of(line) for line in lines]

    def says(self, content: str, share: float = _TOLD) -> bool:
        """Whether the beginning of a text stands here, or a line has enough of its words."""
        start = " ".join(content.split()).lower()[:_START]
        wanted = words_of(content)
        return start in self._flat or any(len(wanted & line) >= share * len(wanted) for line in self._lines if wanted)

    def failure(self, fact: Fact) -> bool:
        """Whether one line tells what was tried and with which error it failed, or both stand here as they were."""
        quote = mentions_failure(fact.content.lower(), fact.detail.lower(), self._flat)
        return quote or self.both(fact.content, fact.detail)

    def both(self, one: str, other: str) -> bool:
        """Whether one line has enough of the words of both texts, and all names that have a number in them."""
        first, second = words_of(one), words_of(other)
        exact = {word for word in first if any(map(str.isdigit, word)) and any(map(str.isalpha, word))}
        return any(
            exact <= line
            and len(first & line) >= _FAILURE_TOLD * len(first)
            and len(second & line) >= _FAILURE_TOLD * len(second)
            for line in self._lines
            if line
        )


def find_unfinished(claim: str, facts: Sequence[Fact]) -> Fact | None:
    """The unfinished point of the to-do list that a line calls done."""
    words_of_claim = words_of(claim)
    items = [(fact, words_of(fact.content)) for fact in facts if fact.kind == "todo"]
    done = [words for fact, words in items if fact.status == "done"]
    for fact, words in items:
        is_open = fact.status in _OPEN and len(words) > 1
        if is_open and words <= words_of_claim and not any(words <= other <= words_of_claim for other in done):
            return fact
    return None
