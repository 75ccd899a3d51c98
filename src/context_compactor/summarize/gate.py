"""The gate between a model's answer and the record: each line is accepted, corrected or removed, with a reason."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from context_compactor.dialects.record import (
    FAILED,
    FINDINGS,
    RULES,
    STANDING,
    TASK,
    Excerpt,
    RecordEntry,
    StoryLine,
    entry_line,
)
from context_compactor.dialects.turns import REFERENCE_PATTERN, reference_id
from context_compactor.summarize.evidence import (
    WORD,
    Evidence,
    Objection,
    QuotableText,
    code_in,
    find_unfinished,
    plain_words,
    urls_in,
)
from context_compactor.summarize.language import NAMES, is_in
from context_compactor.summarize.model import ModelAnswer
from context_compactor.summarize.summary import Summary, parse_summary, turn_named, with_turn_id, without_thoughts
from context_compactor.text import beginning

_IGNORE = r"(?:ignore|disregard|forget|override|bypass|skip|discard)"
_EARLIER = r"(?:previous|prior|above|earlier|preceding|foregoing|existing|original|other|system|your|these|those|all)"
_ORDERS = r"(?:instructions?|prompts?|messages?|rules?|guidelines?|directions?|orders?|commands?|context|constraints?)"
OVERRIDES = re.compile(
    rf"\b{_IGNORE}\b(?:\W+\w+){{0,3}}?\W+{_EARLIER}\b(?:\W+\w+){{0,3}}?\W+{_ORDERS}\b"
    rf"|\b{_IGNORE}\s+(?:everything|anything|all)\b(?:\W+\w+){{0,3}}?\W+(?:above|before|said|told|earlier|previous)"
    r"|\byou are now (?:a|an|the|in|free|no longer)\b|\bfrom now on,? (?:you|the assistant|act|respond|always|never)\b"
    r"|\b(?:new|updated|real|hidden|secret) (?:system )?(?:instructions?|prompt)\b\s*[:=]"
    r"|\b(?:do not|don't|never) (?:tell|inform|alert|mention (?:this|it) to) (?:the )?(?:user|human|operator)\b"
    r"|\b(?:developer|jailbreak|dan|god) mode\b"
    r"|\bimportant instructions? (?:for|to) (?:the )?(?:ai|assistant|agent|model)"
    r"|\b(?:ignoriere|vergiss|missachte)\b.{0,40}\b(?:anweisung|vorgabe|regel)"
    r"|\b(?:ignorez?|oublie[sz]?)\b.{0,40}\b(?:instructions?|consignes?)\b"
    r"|\b(?:ignora|olvida|ignore|esqueça)\b.{0,40}\b(?:instrucciones|instruções|órdenes)\b"
    r"|\b(?:игнорируй|забудь)\w*.{0,40}(?:инструкци|указани)"
    r"|(?:忽略|无视|忘记|忘掉).{0,12}(?:指令|指示|提示|说明)|(?:指示|命令)を(?:無視|忘れ)|(?:지시|명령).{0,6}무시"
)
ADDRESSED = re.compile(
    r"\b(?:you|the (?:assistant|agent|model|ai|llm|reader)|assistant|agents?)\b,? "
    r"(?:must|should|shall|needs? to|have to|has to|are to|is to|(?:are|is) required to|will now|ought to)\b"
    r"|^(?:\w+: )?(?:please|always|never|do not|don't|immediately|make sure|be sure|remember to|run|execute|send|delete"
    r"|upload|download|install|visit|email|reply|respond|reveal) \w"
)
TOOL_SYNTAX = re.compile(
    r"</?(?:antml:)?(?:tool_calls?|tool_use|tool_result|function_calls?|function_results?|invoke|parameter)\b"
    r"|<function=|<\|?(?:tool|python_tag|function)[\w ]{0,20}\|?>|\[/?tool_(?:calls?|results?)\]|```tool_(?:code|call)"
    r"|[\"'](?:tool_calls?|function_call|tool_use)[\"']\s*:"
    r"|\{\s*[\"'](?:name|function|tool|recipient_name)[\"']\s*:\s*[^{}]{1,200}?[\"'](?:arguments|parameters|input|args)[\"']\s*:"
    r"|\bto=functions\.\w|^action input\s*:"
)
ROLE_MARKS = re.compile(
    r"< ?\|[^|<>\n]{1,40}\| ?>|\[/?inst\]|<</?sys>>|</?(?:s|bos|eos|start_of_turn|end_of_turn)>"
    r"|</?(?:system|user|assistant|human|developer|system-reminder|system_prompt|instructions?)(?: [^<>\n]{0,40})?>"
)
FRAMES = re.compile(
    r"\[context record\.|\[end of record\.|</?user turn_\d|=== [0-9a-f]{8} |\[turn_\d+ (?:user|agent)[\],]"
)
SPEAKERS = re.compile(
    r"^[\s>*#_-]{0,8}(?:user|human|assistant|ai|agent|system|developer|tool|nutzer|benutzer|assistent|utilisateur"
    r"|usuario|usuário|asistente|пользователь|ассистент|用户|用戶|助手|系统|ユーザー|アシスタント|사용자|어시스턴트)"
    r"[*_]{0,2}\s{0,2}(?:\(?turn[_ ]\d+\)?)?[*_]{0,2}[:\uff1a]"
)
REFUSALS = re.compile(
    r"^\W{0,4}(?:done: |active: |blocked: )?"
    r"(?:i(?:'m| am) (?:sorry|unable|not able|afraid)|sorry\b|apologies|i apologi[sz]e"
    r"|i (?:can(?:no|')t|can not|won't|will not|must decline|do not feel|don't feel)\b"
    r"|as an? (?:ai|large language model|language model|assistant)\b|unfortunately,? i\b"
    r"|es tut mir leid|ich kann (?:dir |ihnen )?(?:dabei |das )?(?:leider )?nicht|je (?:suis désolé|ne peux pas)|désolé"
    r"|lo siento|no puedo (?:ayudar|asistir|resumir)|desculpe|sinto muito|mi dispiace|извините|к сожалению, я"
    r"|(?:很)?抱歉|对不起|我无法|我不能|申し訳|すみません|죄송)"
)

# Steps that cannot be taken back, and the words one of which must have been spoken before such a step may come next.
RISKS = tuple(
    (re.compile(rf"\b(?:{step})"), re.compile(rf"\b(?:{step}|{other})"))
    for step, other in (
        (
            r"delet|drop\w*\b|wip(?:e|ing)|eras(?:e|ing)|destroy|purg(?:e|ing)|truncat",
            r"remov|clean|clear|rm\b|get rid",
        ),
        (r"push|deploy|publish|releas", r"ship(?:s|ped|ping)?\b|merg(?:e|ing)|pull requests?\b|prs?\b"),
        (r"forc(?:e|ing)|bypass|disabl|circumvent|overrid", r"skip|ignor|no verify|turn\w* off"),
        (r"send|upload|e-?mail|transfer", r"post(?:s|ed|ing)?\b|attach"),
        (r"grant|revok|chmod|chown|sudo", r"permission|access(?:es)?\b|admin|root\b"),
    )
)
PERMISSIONS = re.compile(r"\buser\W+(?:\w+\W+){0,3}?(?:allow|permit|approv|authori[sz])\w*")
PERMITTED = re.compile(
    r"\b(?:allow|permit|approv|authori[sz]|agree)\w*"
    r"|\b(?:yes|yep|yeah|ok|okay|sure|fine|accept(?:ed)?|go ahead|go for it|do it|do so|please do)\b"
    r"|\b(?:you|it) (?:may|can)\b"
)


# Cyrillic and Greek letters that pass for Latin ones, in words that hold Latin ones as well.
_LOOK_ALIKES = str.maketrans("авеікмнорстухѕјԁοαεινρτυχκ", "abeikmhopctyxsjdoaeivptuxk")
_MIXED = re.compile(r"(?=\w{0,60}[a-z])(?=\w{0,60}[\u0370-\u052f])\w+")


def normalize(text: str) -> str:
    """A text in small letters as a reader takes it: no invisible signs, one form for look-alikes."""
    seen = unicodedata.normalize("NFKC", text)
    shown = (sign for sign in seen if sign in "\n\t" or unicodedata.category(sign) not in ("Cc", "Cf", "Mn"))
    small = "".join(shown).replace("\u2019", "'").lower()
    return _MIXED.sub(lambda word: word[0].translate(_LOOK_ALIKES), small)


_QUOTED = re.compile(
    r"[\"\u201c\u201e\u00ab\u300c]([^\"\u201c\u201d\u00bb\u300d\n]{2,900})[\"\u201d\u201c\u00bb\u300d]"
)
_CODE = re.compile(r"`[^`\n]+`")
_CLAUSE = re.compile(r"(; | · |(?<=[.!?]) (?=[A-Z`\"]))")
_ENDING = re.compile(r"\s*\((?:[^()]*\b(?:turn|tool|file|agent)_\d+[^()]*)\)\s*$")
_TURNS = re.compile(r"\((?:turns? )?\d+(?:\s?(?:[-–,]|and)\s?\d+)*\)")
# What is called done must be something that can be looked up: a name, a number, a quote, or words in another script.
_EXACT = re.compile(r"\d|[`\"'\u201c\u201e\u00ab\u300c]|\w[./_\\-]\w|[a-z][A-Z]|[^\x00-\u024f\u2000-\u206f]")
_FINISHED = ("done", "committed", "passed")
_AHEAD = ("next", "doing", "blocked", "asked")
_RUN = 5
_ECHO_RUN = 12
_ECHO_SHARE = 0.6
_ECHO_LEAST = 12
_SAME = 40
_DISTINCT = 0.4
_SHOWN = 80
_LONGEST_SAID = 240
_LONG = 4_000
_HOSTILE_SHARE = 0.25
_GONE_SHARE = 0.6
_FEWEST_HEADINGS = 2
_FEWEST_EXACT = 2
_WHOLE_ENOUGH = 3
_HOSTILE = frozenset(("tool_syntax", "role_mark", "frame", "continued", "instruction", "unspoken", "refusal", "echo"))


class CheckedSummary(Struct, frozen=True):
    """An answer that was compared with the evidence: what may be used of it, and what was changed.

    `wrong` says why nothing of it may be used; `corrections` which lines were changed or left out, and why.
    """

    summary: Summary
    corrections: tuple[Objection, ...] = ()
    wrong: tuple[Objection, ...] = ()


def check_answer(answer: ModelAnswer, evidence: Evidence) -> CheckedSummary:
    """Read an answer, correct it line by line, and say whether it can be used."""
    said = without_thoughts(answer.text)
    wrong = list(_of_call(answer, said))
    if wrong:
        return CheckedSummary(Summary(), wrong=tuple(wrong))
    whole = said.rpartition("\n")[0] if answer.stop == "length" else said  # without the line that was cut off
    summary = parse_summary(whole, own_headings=evidence.own_headings)
    checked = check_summary(summary, evidence)
    return structs.replace(checked, wrong=(*_of_shape(answer, summary, evidence), *checked.wrong))


def _of_call(answer: ModelAnswer, said: str) -> Iterator[Objection]:
    """What shows without reading: no text, or something else than a text."""
    if answer.stop == "tool_call" or answer.tool_calls:
        yield Objection("tool_call", "the answer called a tool; there are no tools here")
    elif answer.stop == "refusal":
        yield Objection("refusal", "the answer was a refusal")
    elif answer.stop not in ("complete", "length"):
        yield Objection("not_complete", "the answer did not come to its end")
    elif not any(map(str.isalnum, said)):
        is_thought = bool(answer.reasoning.strip()) or said != answer.text
        yield Objection("reasoning_only", "the answer was only reasoning") if is_thought else _EMPTY


_EMPTY = Objection("empty", "the answer was empty")


def _of_shape(answer: ModelAnswer, summary: Summary, evidence: Evidence) -> Iterator[Objection]:
    """Whether the answer is what was asked for: some of the sections, and of a cut one enough."""
    if answer.stop == "length" and summary.headings < _WHOLE_ENOUGH:
        yield Objection("cut_off", "the answer was cut off before its end; write much less")
    first = normalize(next(iter((*summary.strays, *summary.lines())), ""))
    if REFUSALS.match(first) and plain_words(first) not in plain_words(evidence.source):
        yield Objection("refusal", f"the answer refuses: {first[:_SHOWN]!r}")
    if len(answer.text) >= max(len(evidence.source), _LONG):
        yield Objection("not_smaller", "the answer is as long as what it should sum up")
    fewest = 1 if evidence.own_headings else _FEWEST_HEADINGS
    if summary.headings < fewest:
        yield Objection("missing_heading", "the answer does not have the sections that were asked for")


def check_summary(summary: Summary, evidence: Evidence) -> CheckedSummary:
    """A summary with every line corrected or left out that the evidence does not bear, and whether enough is left."""
    notes: list[Objection] = []
    corrector = _Corrector(evidence, notes)
    sections = {title: tuple(corrector.entries(title, entries)) for title, entries in summary.sections.items()}
    sections[FINDINGS] = (*sections.get(FINDINGS, ()), *corrector.entries(FINDINGS, corrector.moved))
    kept = Summary(
        {title: entries for title, entries in sections.items() if entries},
        tuple(corrector.story(summary.happened)),
        tuple(corrector.excerpts(summary.excerpts)),
    )
    before, after = len(_points(summary)), len(_points(kept))
    gone = [note for note in notes if note.code in _HOSTILE]
    wrong: list[Objection] = []
    if not kept:
        wrong.append(Objection("empty", "there is nothing under the headings that the conversation bears out"))
    elif len(gone) > _HOSTILE_SHARE * before:
        wrong.append(Objection("hostile", "the answer gives orders to its reader or holds the marks of a conversation"))
    elif before - after > _GONE_SHARE * before:
        wrong.append(Objection("untrue", f"{before - after:,} of {before:,} lines say what the conversation does not"))
    if sum(map(_is_exact, _points(kept))) < min(_FEWEST_EXACT, before):
        wrong.append(Objection("vague", "hardly a line names anything that can be looked up"))
    wrong.extend(_of_wording(kept, evidence))
    return CheckedSummary(kept, tuple(dict.fromkeys(notes)), tuple(wrong))


def _points(summary: Summary) -> list[str]:
    entries = [entry.text for entries in summary.sections.values() for entry in entries]
    return [*entries, *(line.text for line in summary.happened)]


def _is_exact(line: str) -> bool:
    return bool(_EXACT.search(_ENDING.sub("", line)))


def _of_wording(summary: Summary, evidence: Evidence) -> Iterator[Objection]:
    """What the text shows as a whole: another language, a copy of outputs, the same again and again."""
    own = [entry.text for title, entries in summary.sections.items() if title != RULES for entry in entries]
    own += [line.text for line in summary.happened if line.voice != "user"]
    text = _QUOTED.sub(" ", "\n".join(own))
    if not is_in(text, evidence.language):
        yield Objection("wrong_language", f"the answer is not in {NAMES.get(evidence.language, evidence.language)}")
    words = WORD.findall(text.lower())
    runs = [" ".join(words[at : at + _ECHO_RUN]) for at in range(0, len(words) - _ECHO_RUN + 1, 3)]
    if len(runs) >= _ECHO_LEAST and sum(run in evidence.results for run in runs) > _ECHO_SHARE * len(runs):
        yield Objection("echo", "the answer copies the outputs instead of summing up what was done")
    triples = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
    if len(triples) >= _SAME and len(set(triples)) < _DISTINCT * len(triples):
        yield Objection("repetitive", "the answer says the same again and again")


class _Corrector:
    """Corrects one answer and notes each correction."""

    def __init__(self, evidence: Evidence, notes: list[Objection]) -> None:
        self._evidence = evidence
        self._notes = notes
        self.moved: list[RecordEntry] = []
        """What was called a failure and is none."""

    def entries(self, title: str, entries: Sequence[RecordEntry]) -> Iterator[RecordEntry]:
        """The entries of a section that may stand, corrected."""
        for entry in entries:
            corrected = self._entry(title, entry) if title != FAILED or self._has_failed(entry) else None
            if corrected is not None:
                yield corrected

    def _has_failed(self, entry: RecordEntry) -> bool:
        """Whether a failure is one. What was spoken of, but as no failure, is a finding."""
        if self._evidence.is_trouble(entry.text):
            return True
        if self._evidence.is_spoken_of(entry.text):
            self._note("no_failure", "moved to the findings, for it did not fail", entry.text)
            self.moved.append(RecordEntry(entry_line(FAILED, entry)))
        else:
            self._leave_out("no_failure", "nothing of this kind failed in the conversation", entry.text)
        return False

    def _entry(self, title: str, entry: RecordEntry) -> RecordEntry | None:
        if self._is_hostile(title, entry):
            return None
        if title in (TASK, RULES) and entry.text.startswith('"'):
            said = self._user_quote(entry.text)
            return RecordEntry(said, entry.status) if said else None
        if title == RULES and not _QUOTED.search(entry.text):
            return self._as_rule(entry)
        if title == STANDING and entry.status in _FINISHED:
            open_item = find_unfinished(entry.text, self._evidence.facts)
            if open_item is not None:
                self._note("false_claim", "this is not done", entry.text)
                entry = structs.replace(entry, status="open")
            elif not _is_exact(entry.text):
                self._leave_out("vague_claim", "what is done must be named", entry.text)
                return None
        text = self._line(entry.text)
        return RecordEntry(text, entry.status) if text else None

    def _as_rule(self, entry: RecordEntry) -> RecordEntry | None:
        """A rule that is not quoted: the user's sentence that it tells takes its place."""
        near = self._evidence.nearest(_ENDING.sub("", entry.text), user_only=True)
        if not near:
            self._leave_out("unquoted_rule", "the user has not said this", entry.text)
            return None
        self._note("quote", "put into the user's own words", entry.text)
        return RecordEntry(self._with_turn(near, entry.text))

    def _user_quote(self, line: str) -> str:
        """A line that is a quotation of the user, as the user said it; nothing when nothing like it was said."""
        words = _ENDING.sub("", line).strip().strip('"')
        bare = re.sub(r"\s*\([^()]*\)$", "", words)
        quote = self._evidence.user.verbatim(words) or self._evidence.user.verbatim(bare)
        if not quote:
            quote = self._evidence.user.longest_verbatim(words) or self._evidence.nearest(words, user_only=True)
            if not quote:
                self._leave_out("quote", "the user has not said this", line)
                return ""
            self._note("quote", "put into the user's own words", line)
        return self._with_turn(quote, line)

    def _with_turn(self, words: str, line: str) -> str:
        named = turn_named(line)
        in_turn = plain_words(self._evidence.users.get(named, ""))
        turn = named if in_turn and plain_words(words) in in_turn else self._evidence.turn_of(words) or named
        beside = re.search(r" \(([^()]+); turn_\d+\)$", line)
        note = f"{beside[1]}; " if beside and self._line(f"{beside[1]} here") else ""
        return f'"{words}" ({note}{reference_id("turn", turn)})' if turn else f'"{words}"'

    def story(self, lines: Sequence[StoryLine]) -> list[StoryLine]:
        """What happened, in order: the user's words as they were said, and what was done as far as it is borne out."""
        found: list[StoryLine] = []
        moved: dict[int, int] = {}
        for line in lines:
            if line.voice == "user":
                moved[line.turn] = self._turn_said(line)
            turn = min(moved.get(line.turn, line.turn), self._evidence.last)
            if not self._is_hostile("", RecordEntry(line.text)):
                corrected = self._of_user(line, turn) if line.voice == "user" else self._line(line.text)
                found += [StoryLine(turn, line.voice, corrected)] if corrected else []
        return sorted(found, key=lambda line: line.turn)

    def _turn_said(self, line: StoryLine) -> int:
        """The turn in which the user said what a line quotes: the one that it names, or else another one."""
        words = _bracket(line.text)[0]
        if line.turn in self._evidence.users and QuotableText(self._evidence.users[line.turn]).verbatim(words):
            return line.turn
        return self._evidence.turn_of(words) or line.turn

    def _of_user(self, line: StoryLine, turn: int) -> str:
        """The user's words in a turn: as they were quoted, else as they begin."""
        words, beside = _bracket(line.text)
        quote = self._evidence.user.verbatim(words) or self._evidence.user.longest_verbatim(words)
        if not quote:
            said = " / ".join(filter(None, map(str.strip, self._evidence.users.get(turn, "").split("\n"))))
            if not said:
                self._leave_out("quote", f"the user has said nothing in turn {turn}", line.text)
                return ""
            self._note("quote", "put into the user's own words", line.text)
            short = beginning(said, _LONGEST_SAID)
            quote = short if len(short) == len(said) else f"{short} …"
        return f"{quote} {beside}" if beside and self._line(beside) else quote

    def excerpts(self, excerpts: Sequence[Excerpt]) -> Iterator[Excerpt]:
        """Exact lines as they stand in the conversation, under an id that is known."""
        for excerpt in excerpts:
            lines = tuple(quote for line in excerpt.lines for quote in self._exact(line))
            is_known = excerpt.ref in self._evidence.refs
            ref = excerpt.ref if is_known or not lines else self._evidence.home(lines[0])
            if lines and ref:
                label = " ".join(excerpt.label.replace("[", "(").replace("]", ")").split())
                yield Excerpt(ref, label[:120], lines)

    def _exact(self, line: str) -> list[str]:
        """A line as it stands in the source, with its own indentation; nothing when it does not."""
        if line.strip() in ("…", "...") or OVERRIDES.search(normalize(line)):
            return []
        quote = self._evidence.exact_lines(line)
        if not quote:
            self._leave_out("not_verbatim", "this line does not stand in the conversation", line)
        return quote

    def _line(self, line: str) -> str:
        """A line without what is made up in it; nothing when nothing else is in it."""
        line = self._references(with_turn_id(line))
        ending = _ENDING.search(line)
        body, end = (line[: ending.start()], ending[0].rstrip()) if ending else (line, "")
        body = self._quotes(body)
        parts = _CLAUSE.split(body)
        kept = parts[0] if self._clause(parts[0]) else ""
        for joint, clause in zip(parts[1::2], parts[2::2], strict=True):
            if self._clause(clause):
                ends = not joint.strip() and not kept.endswith((".", "!", "?"))
                kept += ("; " if ends else joint) * bool(kept) + clause
        text = self._paths(kept).strip(" ;·,→")
        return f"{text}{end}" if len(WORD.findall(text)) > 1 else ""

    def _references(self, line: str) -> str:
        """A line without ids of turns that are not there."""
        evidence = self._evidence
        for ref in set(REFERENCE_PATTERN.findall(line)) - evidence.refs:
            if ref.startswith("turn_") and 0 < int(ref[5:]) <= evidence.last:
                continue
            self._note("unknown_reference", f"there is no {ref}", line)
            line = re.sub(rf"\s*\({ref}\)|,? ?{ref}", "", line)
        return line

    def _quotes(self, body: str) -> str:
        """A text whose quotations all stand in the source: else the nearest sentence, or no marks."""
        spans = [found.span() for found in _CODE.finditer(body)]

        def checked(found: re.Match[str]) -> str:
            in_code = any(start <= found.start() < end for start, end in spans)
            if in_code or not any(map(str.isalnum, found[1])):
                return found[0]
            quote = self._evidence.passage.verbatim(found[1])
            if quote:
                return f'"{quote}"'
            near = self._evidence.nearest(found[1], user_only=False)
            words = "put into the words that were said" if near else "taken out of its quotation marks"
            self._note("quote", words, found[0])
            return f'"{near}"' if near else found[1]

        return _QUOTED.sub(checked, body)

    def _clause(self, clause: str) -> bool:
        """Whether a part of a line holds nothing that is made up; a path counts by its name alone."""
        invented = [each for each in self._inventions(clause) if not self._is_misplaced(each)]
        if invented:
            words = f"the conversation does not hold {', '.join(repr(each[:_SHOWN]) for each in invented[:3])}"
            self._leave_out("invented", words, clause)
        return not invented

    def _inventions(self, text: str) -> list[str]:
        return list(self._evidence.origin.invented(_TURNS.sub(" ", _QUOTED.sub(" ", text))))

    def _is_misplaced(self, path: str) -> bool:
        """Whether something is a path in another folder than the file of this name has."""
        name = path.rstrip("/").rpartition("/")[2]
        return "/" in path and "://" not in path and "." in name and self._evidence.origin.has_path(name)

    def _paths(self, text: str) -> str:
        for path in self._inventions(text):
            name = path.rstrip("/").rpartition("/")[2]
            self._note("invented", f"only {name!r} is known of a path", path)
            text = text.replace(path, name)
        return text

    def _is_hostile(self, title: str, entry: RecordEntry) -> bool:
        """Whether a line gives orders that are not the user's, holds what no record may hold, or is of our question."""
        line = _ENDING.sub("", entry_line(title, entry)).strip('"')
        is_asked = not self._evidence.asked.isdisjoint((plain_words(line), plain_words(entry_line(title, entry))))
        if is_asked and not self._evidence.passage.verbatim(line):
            self._leave_out("echo", "it is a line of the question", entry.text)
            return True
        found = next(_hostile(title, entry, self._evidence), None)
        if found is not None:
            self._notes.append(found)
        return found is not None

    def _note(self, code: str, words: str, line: str) -> None:
        self._notes.append(Objection(code, f"{words}: {line[:_SHOWN]!r}"))

    def _leave_out(self, code: str, words: str, line: str) -> None:
        self._note(code, f"left out, {words}", line)


def _bracket(text: str) -> tuple[str, str]:
    """The user's words in a line, and what stands in brackets behind them."""
    found = re.search(r'(?<=["\u201d])\s*(\([^()]*\))$', text) or re.search(
        r"\s(\((?:to|of|on|about|answer)\b[^()]*\))$", text
    )
    words, beside = (text[: found.start()], found[1]) if found else (text, "")
    return words.strip().strip('"\u201c\u201d'), beside


def _hostile(title: str, entry: RecordEntry, evidence: Evidence) -> Iterator[Objection]:
    line = entry.text
    # A command may have placeholders that look like marks: what stands in the source as it is here is code.
    read = normalize(_CODE.sub(lambda code: " " if evidence.passage.verbatim(code[0][1:-1]) else code[0], line))
    for code, pattern, words in _MARKS:
        if pattern.search(read):
            yield Objection(code, f"left out, {words}: {line[:_SHOWN]!r}")
    # What the line quotes of the user's own words is no order.
    bare = normalize(_QUOTED.sub(lambda quote: " " if evidence.user.verbatim(quote[1]) else quote[0], line))
    if SPEAKERS.match(bare):
        yield Objection("continued", f"left out, it begins like a turn of a conversation: {line[:_SHOWN]!r}")
    if OVERRIDES.search(bare):
        yield Objection("instruction", f"left out, it orders its reader about: {line[:_SHOWN]!r}")
    if ADDRESSED.search(bare) and _comes_from(bare, evidence.results, evidence.spoken):
        yield Objection("instruction", f"left out, it repeats an order from a tool's output: {line[:_SHOWN]!r}")
    if PERMISSIONS.search(bare) and not PERMITTED.search(evidence.spoken):
        yield Objection("unspoken", f"left out, the user has not allowed this: {line[:_SHOWN]!r}")
    is_ahead = (title == STANDING and entry.status in _AHEAD) or (title == TASK and not line.startswith('"'))
    if is_ahead:
        yield from _unspoken(line, bare, evidence)


_MARKS = (
    ("tool_syntax", TOOL_SYNTAX, "it holds the syntax of a tool call"),
    ("role_mark", ROLE_MARKS, "it holds a mark of a role"),
    ("frame", FRAMES, "it holds a frame that is ours"),
)


def _unspoken(line: str, bare: str, evidence: Evidence) -> Iterator[Objection]:
    """A step to come that nobody has spoken of and that cannot be taken back, or that only a tool's output names."""
    for step, spoken in RISKS:
        found = step.search(bare)
        if found and not spoken.search(evidence.spoken):
            yield Objection("unspoken", f"left out, nobody has spoken of {found[0]!r}: {line[:_SHOWN]!r}")
    exact = [*urls_in(line), *(code for code in code_in(line) if " " in code)]
    if any(plain_words(each) in evidence.results and each not in evidence.said for each in exact):
        yield Objection("instruction", f"left out, the step comes from a tool's output alone: {line[:_SHOWN]!r}")


def _comes_from(read: str, results: str, spoken: str) -> bool:
    """Whether a line has a run of words from a tool's output that neither the user nor the agent has used."""
    words = WORD.findall(read)
    runs = [" ".join(words[at : at + _RUN]) for at in range(max(len(words) - _RUN + 1, 1))]
    return any(run in results and run not in spoken for run in runs if run)
