"""What a model's answer is held against: the text that it was shown, who said what in it, and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct

from context_compactor.facts.consent import replies
from context_compactor.facts.fact import Fact
from context_compactor.facts.speech import agent_sayings, sentences, user_sayings
from context_compactor.messages.message import Text, ToolResult
from context_compactor.messages.record import RULES, TASK
from context_compactor.messages.references import reference_id
from context_compactor.messages.turn import Turn
from context_compactor.plan.sources import call_body
from context_compactor.summarize.exact import Origin, references_in
from context_compactor.summarize.summary import Summary

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
    """What an answer is held against. `shown` is all that the model saw of the conversation and of what came before.

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
        self.asked = frozenset(flat(line) for line in asked.split("\n")) - {""}
        self.last = max((turn.number for turn in turns), default=0)

    @cached_property
    def origin(self) -> Origin:
        """Where exact things must come from."""
        return Origin(self.source)

    @cached_property
    def users(self) -> dict[int, str]:
        """The user's own words, by turn, with those that came through a tool."""
        found: dict[int, str] = {}
        for saying in (*user_sayings(self.turns), *replies(self.turns)):
            found[saying.turn] = "\n".join(filter(None, (found.get(saying.turn, ""), saying.text)))
        return found

    @cached_property
    def user(self) -> Passage:
        """All that stands in the user's name, with what an earlier record quotes of the user, and the system text."""
        texts = [message.text for turn in self.turns for message in turn.messages if message.role == "user"]
        quoted = [entry.text for title in (TASK, RULES) for entry in self.earlier.sections.get(title, ())]
        told = [line.text for line in self.earlier.happened if line.voice == "user"]
        return Passage("\n".join((*texts, *self.users.values(), *quoted, *told, self.system)))

    @cached_property
    def passage(self) -> Passage:
        """All that was shown."""
        return Passage(self.source)

    @cached_property
    def said(self) -> str:
        """The words and calls of the user and the agent, without results."""
        words = [message.text for turn in self.turns for message in turn.messages if message.role != "tool"]
        calls = [call.arguments for turn in self.turns for message in turn.messages for call in message.calls]
        return "\n".join((*words, *calls, self.earlier.text))

    @cached_property
    def spoken(self) -> str:
        """The same as words alone."""
        return flat(self.said)

    @cached_property
    def results(self) -> str:
        """The results of calls, as words alone."""
        found = [part.text for turn in self.turns for _, _, _, part in turn.parts() if isinstance(part, ToolResult)]
        return flat("\n".join(found))

    @cached_property
    def user_sentences(self) -> list[tuple[str, set[str]]]:
        """What the user said, sentence by sentence, with the words of each."""
        return _sentences(self.users.values())

    @cached_property
    def agent_sentences(self) -> list[tuple[str, set[str]]]:
        """What the agent said, likewise."""
        return _sentences(saying.text for saying in agent_sayings(self.turns))

    @cached_property
    def refs(self) -> frozenset[str]:
        """The ids that a line may name."""
        return frozenset(references_in(self.source) | {fact.ref for fact in self.facts})

    def turn_of(self, words: str) -> int:
        """The turn in which the user said this; 0 when it was none of these turns."""
        return next((turn for turn, text in self.users.items() if Passage(text).verbatim(words)), 0)

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
        return [whole] if whole else [stands for part in parts if len(part) > _SHORT and (stands := self.line(part))]

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


class Passage:
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
        if not found or not all(stands for _, stands in found):
            return ""
        for piece, stands in found:
            words = words.replace(piece, stands, 1)
        return words

    def standing(self, words: str) -> str:
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


def flat(text: str) -> str:
    """The words of a text with one blank between them, in small letters."""
    return " ".join(WORD.findall(text.lower()))


def words_of(text: str) -> set[str]:
    """The words of a text, each once, in small letters."""
    return set(WORD.findall(text.lower()))


def content_words(text: str) -> set[str]:
    """The longer words of a text, which say what it is about."""
    return set(_CONTENT.findall(text.lower())) - _COMMON


_COMMON = frozenset(
    "this that with from then than when have been were will would should could into again after before which there "
    "here turn open resolved given also only does done they them what your file line lines code agent user".split()
)
