"""The sentences of a conversation and its steps with their outcomes: what a story is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from context_compactor.dialects.turns import ToolUse, Turn
from context_compactor.engine.classify import Verdict, Verdicts
from context_compactor.engine.digests.outcomes import outcome_of
from context_compactor.facts.calls import ASKING_TOOLS, ParsedCall, parse_call, short_command
from context_compactor.facts.decisions import answers_in, refusal_words
from context_compactor.facts.failures import Failure
from context_compactor.facts.files import definition_in
from context_compactor.facts.kinds import Kind
from context_compactor.facts.outcomes import is_read_only
from context_compactor.facts.shell import heredoc_in
from context_compactor.facts.side_effects import is_launch
from context_compactor.facts.utterances import is_quoted, without_code

_CAPITAL = r"[A-Z0-9\u00c0-\u00de\u0410-\u042f\u3040-\u9fff\uac00-\ud7af`\"'(*\[]"
_END = re.compile(rf"(?<=[.!?…])[ \t]+(?={_CAPITAL})|(?<=[\u3002\uff01\uff1f])")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,3}[.)]|#{1,6})\s+")
_RULE_LINE = re.compile(r"[\s|:=*_+-]*")
_EMPHASIS = re.compile(r"\*\*")
_LONGEST = 400
# A line as long as this with so many signs of a notation is no sentence.
_LONG_NOTATION = 60
_NOTATION_SIGN = re.compile(r'["{}\[\]=;<>|\\]')
_MOST_TEXT = 60_000


def sentences_of(text: str, *, is_quote: bool = False) -> list[str]:
    """The sentences of a text in order, long ones cut into clauses. A quotation keeps its bullets and its emphasis."""
    lines = prose_lines(text)
    return [each for line in lines for each in split_sentences(line if is_quote else _plain(line))]


def prose_lines(text: str) -> list[str]:
    """The lines of a text that are somebody's words, without those of code blocks, logs and data."""
    lines = map(str.strip, without_code(text[:_MOST_TEXT]).split("\n"))
    return [line for line in lines if line and not _RULE_LINE.fullmatch(line) and not _is_pasted(line)]


def _is_pasted(line: str) -> bool:
    """Whether a line is a log, code or data rather than somebody's words."""
    is_notation = len(line) > _LONG_NOTATION and len(_NOTATION_SIGN.findall(line)) * 12 > len(line)
    return is_notation or (is_quoted(line) and not line.startswith(">"))


def split_sentences(line: str) -> list[str]:
    """The sentences of one line; very long ones are cut into clauses. A bullet or number stays with its sentence."""
    bullet = _BULLET.match(line)
    start = bullet.end() if bullet else 0
    found = [clause for sentence in _END.split(line[start:]) for clause in _clauses(sentence.strip())]
    if found:
        found[0] = line[:start] + found[0]
    return [clause for clause in found if len(clause) > 1]


def _plain(line: str) -> str:
    """A line of prose without its bullet and its emphasis."""
    bullet = _BULLET.match(line)
    return _EMPHASIS.sub("", line[bullet.end() :] if bullet else line).strip("| ")


def _clauses(sentence: str) -> list[str]:
    if len(sentence) <= _LONGEST:
        return [sentence]
    at = max(sentence.rfind(mark, _LONGEST // 3, _LONGEST) for mark in ("; ", ", ", " "))
    cut = at + 1 if at > 0 else _LONGEST
    return [sentence[:cut].rstrip(), *_clauses(sentence[cut:].lstrip())]


def cut_words(text: str, most: int) -> str:
    """The beginning of a text, cut between two words where there is a gap to cut at."""
    if len(text) <= most:
        return text
    at = text.rfind(" ", most * 2 // 3, most - 1)
    return text[: at if at > 0 else most - 1].rstrip() + "…"


# What a step of each kind is worth beside the agent's own words, which are worth 1 to 3.
EDIT, DEFINED, EDITED_LINE, COMMIT, REPORT, FORM, PLAN = 2.2, 1.2, 0.4, 5.0, 2.2, 5.0, 1.2
RUN, FAILED_RUN, CHECK, LOOK, ANSWER = 0.8, 1.5, 1.8, 0.12, 6.0

_EDITED = ("old_string", "old_str", "old_text", "oldText", "search"), ("new_string", "new_str", "new_text", "newText")
_WRITTEN = ("content", "file_text", "text", "contents", "new_source")
_PATCH_FILE = re.compile(r"^\*\*\* (Update|Add|Delete) File: (.+)$", re.MULTILINE)
_MESSAGE = re.compile(
    r"""-\w*m\s+(?:"\$\(cat <<-?\s*'?(\w+)'?\n(.*?)\n\s*\1|"((?:[^"\\]|\\.)*)"|'([^']*)')""", re.DOTALL
)
_TITLE = re.compile(r"""--title[ =](?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")
_BODY = re.compile(
    r"""--body[ =](?:"\$\(cat <<-?\s*'?(\w+)'?\n(.*?)\n\s*\1|"((?:[^"\\]|\\.)*)"|'([^']*)')""", re.DOTALL
)
_BROKEN = re.compile(r"(?<=[^\s.:!?])\n[ \t]*(?=[^\s\-*\d#])")
_SIGNED = re.compile(r"^(?:Co-Authored-By|Signed-off-by|Generated with|🤖).*$", re.MULTILINE | re.IGNORECASE)
_REMARK = re.compile(r"\s*(?:#|//|--|/?\*|\"\"\"|<!--)\s*\w+ \w+")
_IMPORT = re.compile(
    r"\s*(?:import\b|from \S+ import\b|#include\b|using \S+;|use \S+;|package \w+|require\(|const \(|var \(|import \()"
    r"|\s*\"[\w./-]+\",?\s*$|(?:--- |\+\+\+ |@@ |index [0-9a-f]|diff --git )|\s*Co-Authored-By:"
)
_IMPORT_BEGINS = frozenset('if#uprcv"-+@dC')
_TELLS = re.compile(r"[A-Za-z]{3}")
_HIDDEN_END = re.compile(r"\s*(?:2>&1|2>/dev/null|\| ?(?:tail|head)(?: -n?\s?\d+| -\d+)?|\|\| true)\s*(?=$|\|)")
_NOTE = re.compile(r" \(\w+\)$")
_STATUS_FIELD = re.compile(r"^\W{0,6}status\W{0,4}: ", re.MULTILINE | re.IGNORECASE)
_PLANNING_TOOLS = frozenset("exitplanmode createplan".split())
_LISTS = frozenset("todowrite updateplan writetodos updatetodolist taskcreate taskupdate tasklist todo".split())
_LONGEST_COMMAND = 140
_LONGEST_LINE = 110
_LONGEST_REPORT = 320
_MOST_LINES = 40
_MOST_SENTENCES = 60
_LONGEST_SIDE = 60_000


class StoryStep(Struct, frozen=True):
    """One thing that can be told of a tool call. Steps with one `head` are told in one line behind it."""

    voice: str
    head: str
    text: str
    weight: float


def steps_of(turn: Turn, verdicts: Verdicts) -> Iterator[StoryStep]:
    """Everything that can be told of a turn's calls, the most telling of each call first."""
    for use in turn.exchanges:
        verdict = verdicts.exchanges.get(use.number)
        if use.call is not None and verdict is not None:
            yield from _steps(use, parse_call(use.call), verdict, verdicts.root)


def _steps(use: ToolUse, reading: ParsedCall, verdict: Verdict, root: str) -> Iterator[StoryStep]:
    failure = verdict.failure
    if reading.tool in _LISTS:
        return
    if failure and failure.denied:
        words = refusal_words(use.result.text) if use.result else ""
        yield StoryStep("user", "", f"{words} (refused: {verdict.label})".lstrip(), ANSWER)
        return
    if reading.tool in ASKING_TOOLS:
        answer = use.result.text if use.result and not use.result.is_error else ""
        for question, choice in answers_in(answer):
            yield StoryStep("user", "", f"{choice} (asked: {question})", ANSWER)
    elif reading.tool in _PLANNING_TOOLS:
        plan = reading.arguments.get("plan")
        yield from _said("plan", "", plan if isinstance(plan, str) else "", PLAN)
    elif verdict.kind is Kind.SUBAGENT:
        yield from _report(use, verdict)
    elif reading.command is not None:
        yield from _command(use, reading, verdict, root)
    elif reading.writes:
        yield from _edit(reading, failure, root)
    else:
        outcome = outcome_of(use, verdict.kind, failure)
        weight = FAILED_RUN if failure else LOOK if verdict.is_look or reading.reads else RUN
        yield StoryStep("look" if weight == LOOK else "run", "", _with_outcome(verdict.label, outcome), weight)


def _with_outcome(what: str, outcome: str) -> str:
    return f"{what} → {outcome}" if outcome else what


def _report(use: ToolUse, verdict: Verdict) -> Iterator[StoryStep]:
    """What a sub-agent was asked, and what it reported: in short where it filled in a form, and in its sentences."""
    answer = use.result.text if use.result else ""
    if is_launch(answer):
        yield StoryStep("report", f"{verdict.label}: ", "started in the background.", REPORT)
        return
    steps = _said("report", f"{verdict.label}: ", answer[:_LONGEST_SIDE], REPORT)
    if _STATUS_FIELD.search(answer, 0, _LONGEST_SIDE):
        short = outcome_of(use, verdict.kind, verdict.failure, _LONGEST_REPORT)
        yield StoryStep("report", f"{verdict.label}: ", f"{short}.", FORM)
        # Without the labels of the form, and the fields whose words are said in short already.
        labelled = ((step, step.text.rpartition(": ")) for step in steps if not step.text.endswith(":"))
        steps = (step for step, (label, _, value) in labelled if _NOTE.sub("", value or label) not in short)
    yield from steps


def report_steps(head: str, report: str) -> Iterator[StoryStep]:
    """What a sub-agent reported after it had worked in the background, in its sentences."""
    yield from _said("report", head, report[:_LONGEST_SIDE], REPORT)


def _said(voice: str, head: str, text: str, weight: float) -> Iterator[StoryStep]:
    for sentence in sentences_of(text)[:_MOST_SENTENCES]:
        yield StoryStep(voice, head, sentence, weight)


def _command(use: ToolUse, reading: ParsedCall, verdict: Verdict, root: str) -> Iterator[StoryStep]:
    command = reading.command or ""
    if "git commit" in command and not verdict.failure:
        yield from _commit(use, command)
    elif ("gh pr create" in command or "gh issue create" in command) and not verdict.failure:
        yield from _pull_request(use, command, verdict)
    elif reading.writes:
        yield from _edit(reading, verdict.failure, root)
    else:
        is_look = verdict.is_look or reading.reads or is_read_only(reading.steps)
        is_check = verdict.kind is Kind.TEST_RUN
        weight = FAILED_RUN if verdict.failure else CHECK if is_check else LOOK if is_look else RUN
        outcome = outcome_of(use, verdict.kind, verdict.failure)
        yield StoryStep(
            "look" if weight == LOOK else "run",
            "",
            _with_outcome(f"`{_shown_command(command, root)}`", outcome),
            weight,
        )


def _shown_command(command: str, root: str) -> str:
    """A command as one line without the ends that only shorten its output."""
    return short_command(_HIDDEN_END.sub("", command.replace(root, "") if root else command), _LONGEST_COMMAND)


def _commit(use: ToolUse, command: str) -> Iterator[StoryStep]:
    found = _MESSAGE.search(command)
    message = _SIGNED.sub("", (found[2] or found[3] or found[4] or "") if found else "").strip()
    title, _, body = message.partition("\n")
    outcome = outcome_of(use, Kind.COMMAND, None)
    yield StoryStep("commit", "", cut_words(outcome or title or "git commit", 160), COMMIT)
    # Lines that were broken at a width become one for each paragraph or list item.
    yield from _said("commit", "", _BROKEN.sub(" ", body), COMMIT / 3)


def _pull_request(use: ToolUse, command: str, verdict: Verdict) -> Iterator[StoryStep]:
    title, body = _TITLE.search(command), _BODY.search(command)
    named = next(filter(None, title.groups()), "") if title else ""
    outcome = outcome_of(use, verdict.kind, None)
    yield StoryStep(
        "commit", "", _with_outcome(f'opened "{named}"' if named else _shown_command(command, ""), outcome), COMMIT
    )
    if body:
        yield from _said("commit", "", body[2] or body[3] or body[4] or "", COMMIT / 3)


def _edit(reading: ParsedCall, failure: Failure | None, root: str) -> Iterator[StoryStep]:
    if failure:
        what = ", ".join(_shown(path, root) for path in reading.paths) or reading.tool
        yield StoryStep("edit", "", f"{what}: failed, {failure.error}", FAILED_RUN)
        return
    for path, gone, added in _changes(reading):
        head = f"{_shown(path, root)}: "
        lines = _telling(added, path)
        if not lines:
            yield StoryStep("edit", head, f"− {cut_words(gone[0].strip(), _LONGEST_LINE)}" if gone else "changed", EDIT)
            continue
        first, *rest = lines
        yield StoryStep("edit", head, first, EDIT)
        yield from (
            StoryStep("edit", head, line, DEFINED if definition_in(line, path) else EDITED_LINE) for line in rest
        )


def _telling(added: Sequence[str], path: str) -> list[str]:
    """The added lines that tell something: what is defined, then what comments say, then the rest, without imports."""
    telling = [line for line in added if _TELLS.search(line) and not is_import(line)]
    defined = [line for line in telling if definition_in(line, path)]
    remarks = [line for line in telling if _REMARK.match(line)]
    ordered = dict.fromkeys(cut_words(line.strip(), _LONGEST_LINE) for line in (*defined, *remarks, *telling))
    return list(ordered)[:_MOST_LINES] or [cut_words(line.strip(), _LONGEST_LINE) for line in added[:1]]


def is_import(line: str) -> bool:
    """Whether a line only brings in a name from elsewhere, or is a diff's own."""
    return line.lstrip()[:1] in _IMPORT_BEGINS and _IMPORT.match(line) is not None


def _changes(reading: ParsedCall) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each file that a call changes, with the lines it takes out and those it puts in."""
    values = reading.arguments
    text = next((value for value in values.values() if isinstance(value, str) and "*** Begin Patch" in value), "")
    patch = text or (reading.command if reading.command and "*** Begin Patch" in reading.command else "")
    if patch:
        yield from _patched(patch)
        return
    path = reading.paths[0] if reading.paths else ""
    if reading.command is not None:
        text = heredoc_in(reading.command, path)
        yield path, [], text.split("\n") if text else [_shown_command(reading.command, "")]
        return
    edits = values.get("edits")
    for edit in (each for each in edits if isinstance(each, dict)) if isinstance(edits, list) else (values,):
        old, new = (_first(edit, keys) for keys in _EDITED)
        yield (path, *_difference(old, new or _first(edit, _WRITTEN)))


def _first(values: dict[str, object], keys: Sequence[str]) -> str:
    found = (values[key] for key in keys if isinstance(values.get(key), str))
    return str(next(found, ""))[:_LONGEST_SIDE]


def _difference(old: str, new: str) -> tuple[list[str], list[str]]:
    before, after = old.split("\n"), new.split("\n")
    known, now = {line.strip() for line in before}, {line.strip() for line in after}
    gone = [line for line in before if line.strip() and line.strip() not in now]
    return gone, [line for line in after if line.strip() and line.strip() not in known]


def _patched(patch: str) -> Iterator[tuple[str, list[str], list[str]]]:
    heads = list(_PATCH_FILE.finditer(patch))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        lines = patch[head.end() : after.start() if after else len(patch)].split("\n")
        gone = [line[1:] for line in lines if line.startswith("-")]
        yield head[2].strip(), gone, [line[1:] for line in lines if line.startswith("+")]


def _shown(path: str, root: str) -> str:
    return path.removeprefix(root) if root else path
