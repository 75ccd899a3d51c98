"""How a tool call ended, in one line: counts and failing names, the error and where, the hits, what git changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from context_compactor.dialects.messages import ToolCall
from context_compactor.dialects.turns import ToolUse
from context_compactor.engine.digests.command_outcomes import command_outcome, last_line, placed_errors, sums
from context_compactor.engine.digests.responses import FIRST_KEYS, STATUS_LINE
from context_compactor.engine.digests.searches import WEB_HIT, SearchMatch, find_hits, only_file, top_hits
from context_compactor.engine.digests.subagents import read_subagent_report
from context_compactor.engine.digests.test_runs import read_test_run
from context_compactor.engine.digests.text import counted, to_lines
from context_compactor.engine.digests.traces import read_trace
from context_compactor.facts.calls import ParsedCall, is_own_tool, parse_call
from context_compactor.facts.failures import Failure
from context_compactor.facts.kinds import Kind
from context_compactor.facts.outcomes import is_refusal
from context_compactor.facts.outputs import ToolOutput, unwrap

# Of longer outputs only the two ends are looked at.
_HEAD = 8_000
_TAIL = 24_000
_JSON_READ = 2_000_000
# Room below which a further part says nothing.
_LEAST_PART = 14
_VALUE = 60
_URL = 120
_FEW_VALUES = 4
_NOTHING = "no output"
_PATH = 44
_RUNNING = re.compile(r"Process running with session ID (\S+)")
_SEARCHES = frozenset("rg grep egrep fgrep ag ack find fd fdfind locate search_dir search_file find_file".split())
# What a client answers when asked for the output of something that runs in the background.
_BACKGROUND = re.compile(r"<retrieval_status>.{0,400}?<status>(\w+)</status>.{0,200}?<output>(.*)", re.DOTALL)
_NO_HITS = re.compile(r"\s*(?:no (?:matches|files|results)(?: were)?(?: found)?|found 0)\b", re.IGNORECASE)
_FOUND = re.compile(r"Found (\d+) (?:files?|matches)\b")
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,300})|^#{1,3} (\S[^\n]{0,300})", re.IGNORECASE | re.MULTILINE)
_LOG_ERROR = re.compile(r"\b(?:ERROR|FATAL|CRITICAL|PANIC|error|fatal|panic)\b")
# A test that passed, in the output of a run that has not come to its totals.
_PASSED = re.compile("\\(pass\\) |\\S+::.{1,300} PASSED\\b|\\s*[\u2713\u2714] |test \\S.{0,200} \\.\\.\\. ok\\b")
_NAMES_SPLIT = re.compile("::| > | \u203a ")
_KEY = re.compile(r"(?:^|_)(?:id|url|state|count|total|number|name|title|sha)$|(?:Id|Url|State|Count|Number|At)$")
_decode = msgspec.json.Decoder(float_hook=str).decode


# How a line of ours begins that says how a call ended, in front of what is kept of its result.
_MARK = "[in short: "
_MARKED = re.compile(r"(?:\[failed: [^\n]*\]\n)?\[in short: ([^\n]*)\](?:\n|$)")


def outcome_mark(outcome: str) -> str:
    """The line that heads a shortened result."""
    return f"{_MARK}{outcome}]"


class _EndedCall(msgspec.Struct, frozen=True):
    """A tool call that came to an end, taken apart for the rule of its kind."""

    call: ToolCall | None
    reading: ParsedCall | None
    body: str
    failure: Failure | None
    most: int

    @property
    def is_cut(self) -> bool:
        """Whether the lines are only the two ends."""
        return len(self.body) > _HEAD + _TAIL

    def lines(self) -> list[str]:
        """The lines of the output, or of its two ends."""
        body = f"{self.body[:_HEAD]}\n{self.body[-_TAIL:]}" if self.is_cut else self.body
        return to_lines(body.strip("\n"))


def outcome_of(use: ToolUse, kind: Kind, failure: Failure | None, most: int = 160) -> str:
    """One line of at most `most` characters that says how a tool call ended; "" when there is nothing to tell."""
    if use.result is None or use.is_lost or is_own_tool(use.call):
        return ""
    text = use.result.text
    marked = _MARKED.match(text)
    if marked:
        return clip_outcome(marked.group(1), most)
    output = unwrap(text)
    reading = parse_call(use.call) if use.call else None
    ended = _EndedCall(use.call, reading, output.body, failure, most)
    told = _refused(failure) if failure and failure.denied else _outcome_text(ended, kind, output)
    running = _RUNNING.search(text, 0, 200) if text.startswith("Chunk ID") else None
    if running:
        said = f": {told}" if told and told != _NOTHING else ""
        told = f"still running (session {running.group(1)}){said}"
    return clip_outcome(told, most)


def clip_outcome(text: str, most: int) -> str:
    """A text as one line within `most` characters, cut at a word."""
    line = " ".join(text[: most * 4].split())
    if not line.isprintable():
        line = " ".join("".join(character if character.isprintable() else " " for character in line).split())
    if len(line) <= most:
        return line
    cut = line[: max(most - 1, 0)]
    at = cut.rfind(" ")
    return ((cut[:at] if at > most // 2 else cut).rstrip(" ,;:…") + "…")[: max(most, 0)]


def _refused(failure: Failure) -> str:
    """A refusal with the user's words, which are the failure's error where there are any."""
    return "refused by the user" if is_refusal(failure.error) else f"refused by the user: {failure.error}"


def _outcome_text(ended: _EndedCall, kind: Kind, output: ToolOutput) -> str:
    if not output.body or output.body.isspace():
        return _silent(ended, kind, output)
    if ended.failure is None and ended.reading and ended.reading.writes and kind is Kind.COMMAND:
        return "" if ended.reading.command is None else command_outcome(ended.reading, ended.lines())
    return _RULES[kind](ended)


def _silent(ended: _EndedCall, kind: Kind, output: ToolOutput) -> str:
    if ended.failure:
        return ended.failure.error or f"exit code {output.exit_code}"
    if kind is Kind.SEARCH_RESULT:
        return "no hits"
    if ended.reading and any(step.words[:2] == ("git", "status") for step in ended.reading.steps):
        return "nothing changed"
    if kind is Kind.TALK or (ended.reading and (ended.reading.writes or ended.reading.reads)):
        return ""
    return f"exit code {output.exit_code}, {_NOTHING}" if output.exit_code else _NOTHING


def _joined(parts: Iterable[str], most: int) -> str:
    """The parts in their order as long as there is room for something of them."""
    told = ""
    for part in parts:
        left = most - len(told) - 2
        if part and (not told or left >= _LEAST_PART):
            told += f"{'; ' if told else ''}{clip_outcome(part, left)}"
    return told


def _tests(ended: _EndedCall) -> str:
    lines = ended.lines()
    verdict = read_test_run("\n".join(lines))
    if verdict is None:
        passed = sum(map(bool, map(_PASSED.match, lines)))
        return f"{passed} passed so far" if passed and ended.failure is None else _command(ended)
    counted_lines = sums(lines)
    others = [each for each in counted_lines if each not in verdict.counts]
    at_least = "at least " if ended.is_cut and verdict.runner in ("go test", "cargo test") else ""
    head = "; ".join([*others, at_least + verdict.summary])
    if not verdict.failures and ended.failure:
        has_run = any(verdict.totals.values())
        return _joined([head if has_run else "", ended.failure.error], ended.most)
    if not verdict.failures:
        return head
    names = _names([name for name, _ in verdict.failures], ended.most - len(head) - 2)
    return _joined([f"{head}: {names}", next((why for _, why in verdict.failures if why), "")], ended.most)


def _names(names: Sequence[str], room: int) -> str:
    """The names of failing tests; without the files they are in, when they do not all fit with them."""
    whole = ", ".join(dict.fromkeys(names))
    if len(whole) <= room * 2 // 3:
        return whole
    short = list(dict.fromkeys(_NAMES_SPLIT.split(name)[-1] for name in names))
    kept = 1
    while kept < len(short) and len(", ".join(short[: kept + 1])) <= room - 10:
        kept += 1
    return ", ".join(short[:kept]) + (f" … {len(short) - kept} more" if len(short) > kept else "")


def _trace(ended: _EndedCall) -> str:
    lines = ended.lines()
    raised = read_trace(lines)
    if raised is None:
        return _failed(ended) if ended.failure else last_line(lines)
    place = f"at {_short_place(raised.place)}" if raised.place else ""
    cause = f"caused by {raised.cause}" if raised.cause else ""
    room = ended.most - min(len(place) + 1, ended.most // 2)
    return f"{_joined([raised.message, cause], room)} {place}"


def _short_place(place: str) -> str:
    """A frame as its file and line, and the function when it is named."""
    where = place.partition(": ")[0]
    path, _, name = where.partition(" in ") if " in " in where else where.partition(" ")
    return f"{_short_path(path)}{f' in {name}' if name and name != '<module>' else ''}"


def _short_path(path: str) -> str:
    if len(path) <= _PATH:
        return path
    folders = path.split("/")
    last_two = "/".join(folders[-2:])
    return f"…/{last_two if len(last_two) <= _PATH else folders[-1]}"


def _failed(ended: _EndedCall) -> str:
    return ended.failure.error if ended.failure else ""


def _command(ended: _EndedCall) -> str:
    lines = ended.lines()
    if ended.failure is None:
        return command_outcome(ended.reading, lines, is_cut=ended.is_cut)
    if "Traceback (most recent" in ended.body[:_HEAD] or "Traceback (most recent" in ended.body[-_TAIL:]:
        return _trace(ended)
    counts = sums(lines)
    if counts and ":" in counts[-1]:
        return "; ".join(counts)
    return placed_errors(lines) or ended.failure.error or last_line(lines)


def _quiet(ended: _EndedCall) -> str:
    """What only shows something tells nothing, unless it is a line or two."""
    if ended.failure:
        return _failed(ended)
    if len(ended.body) > 2 * ended.most:
        return ""
    return last_line(ended.lines(), is_look=True)


def _search(ended: _EndedCall) -> str:
    if _NO_HITS.match(ended.body):
        return "no hits"
    web = WEB_HIT.findall(ended.body[:_HEAD]) if '"title"' in ended.body[:_HEAD] else []
    if web:
        return f"{counted(len(web), 'result')}: " + ", ".join(f"{title} ({url})" for title, url in web[:3])
    if ended.body.lstrip()[:1] in ("{", "["):
        return _json(ended)
    if ended.failure and not _is_search(ended):
        return _command(ended)
    lines = [line for line in ended.lines() if line.strip()]
    hits = find_hits(lines, only_file(ended.call))
    if not hits:
        return _failed(ended) if ended.failure else _found_files(lines, ended.is_cut)
    files = len({hit.path for hit in hits if hit.path})
    number = f"{'over ' if ended.is_cut else ''}{counted(len(hits), 'hit')}{f' in {files} files' if files > 1 else ''}"
    room = max((ended.most - len(number) - 2) // min(len(hits), 2), 40)
    return f"{number}: " + "; ".join(clip_outcome(_hit(hit, files > 1), room) for hit in top_hits(hits))


def _is_search(ended: _EndedCall) -> bool:
    """Whether the call searched; a compiler's complaints look like hits too."""
    steps = ended.reading.steps if ended.reading else ()
    return not steps or any(step.program in _SEARCHES or "grep" in step.words for step in steps)


def _hit(hit: SearchMatch, with_path: bool) -> str:
    place = ":".join(part for part in (_short_path(hit.path) if with_path else "", hit.line) if part)
    return f"{place} {hit.text.strip().rstrip(' ,;{(')}".strip()


def _found_files(lines: Sequence[str], is_cut: bool) -> str:
    """A list of paths; of other text, such as lines without their places, one or two."""
    told = _FOUND.match(lines[0]) if lines else None
    paths = list(lines[1:] if told else lines)
    if not all(" " not in path.strip() and len(path) < 200 for path in paths[:5]):
        return last_line(paths, is_look=True)
    number = f"{told.group(1)} files" if told else f"{'over ' if is_cut else ''}{counted(len(paths), 'file')}"
    return f"{number}: " + ", ".join(_short_path(path.strip()) for path in paths[:4])


def _agent(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    if ended.body.lstrip()[:1] in ("{", "["):
        return _json(ended)
    background = _BACKGROUND.match(ended.body[:_HEAD])
    if background:
        inner = msgspec.structs.replace(ended, body=background.group(2).removesuffix("</output>").strip())
        return f"{background.group(1)}: {_tests(inner) if inner.body else _NOTHING}"
    report = read_subagent_report(ended.body)
    status = f"{report.status}: " if report.status else ""
    files = f"files: {', '.join(_short_path(path) for path in report.files[:4])}" if report.files else ""
    advice = f"recommends: {', '.join(point.rstrip('.') for point in report.advice[:3])}" if report.advice else ""
    summary = status + clip_outcome(report.summary, max(ended.most * 5 // 8, 20))
    return _joined([summary, advice, files, report.tests], ended.most)


def _json(ended: _EndedCall) -> str:
    body = ended.body.strip()
    status = STATUS_LINE.match(body[:200])
    if status:
        body = body.replace("\r\n", "\n").partition("\n\n")[2].strip()
    try:
        value = _decode(body) if body[:1] in ("{", "[") and len(body) < _JSON_READ else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
        value = None
    code = status.group().partition(" ")[2] if status else ""
    if isinstance(value, dict | list):
        return _joined([code, *_values(value, _asked(ended.reading))], ended.most)
    if code:
        return _joined([code, last_line(to_lines(body[-_TAIL:]), is_look=True)], ended.most)
    return _command(ended)


def _asked(reading: ParsedCall | None) -> frozenset[str]:
    """Values that the call itself gave: to hear them back says nothing."""
    return (
        frozenset(str(value) for value in reading.arguments.values())
        if reading and not reading.command
        else frozenset()
    )


def _values(value: dict[str, Any] | list[Any], asked: frozenset[str]) -> list[str]:
    """How many items, and the values by which one knows the first again; of an object those of its fields."""
    prefix = ""
    while isinstance(value, dict) and len(value) == 1:
        key, inner = next(iter(value.items()))
        if not isinstance(inner, dict | list):
            break
        prefix, value = f"{prefix}{key}: ", inner
    if isinstance(value, list):
        first = value[0] if value else None
        if not isinstance(first, dict):
            return [f"{prefix}{counted(len(value), 'item')}", _scalar(first) if value else ""]
        tallies = _tallies(value)
        told = [pair for pair in _pairs(first, asked) if pair.partition("=")[0] not in tallies]
        return [", ".join([f"{prefix}{counted(len(value), 'item')}", *tallies.values()]), f"first: {', '.join(told)}"]
    pairs = _pairs(value, asked)
    sizes = [f"{key}: {counted(len(each), 'item')}" for key, each in value.items() if isinstance(each, list)]
    return [f"{prefix}{', '.join([*pairs, *sizes])}" if value else f"{prefix}empty object"]


def _tallies(values: list[Any]) -> dict[str, str]:
    """How often each value of a field comes that says how an item stands."""
    found: dict[str, str] = {}
    for key in ("status", "state", "conclusion", "result", "severity"):
        counts = Counter(str(each[key]) for each in values if isinstance(each, dict) and isinstance(each.get(key), str))
        if len(values) > 1 and 0 < len(counts) <= _FEW_VALUES:
            found[key] = f"{key} " + ", ".join(
                f"{clip_outcome(name, 30)} {count}" for name, count in counts.most_common()
            )
    return found


def _pairs(value: dict[str, Any], asked: frozenset[str]) -> list[str]:
    plain = {key: each for key, each in value.items() if not isinstance(each, dict | list)}
    plain |= {key: each["message"] for key, each in value.items() if isinstance(each, dict) and "message" in each}
    plain = {key: each for key, each in plain.items() if each != "" and str(each) not in asked}
    first = [key for key in FIRST_KEYS if key in plain]
    telling = [key for key in plain if _KEY.search(key)]
    short = [key for key, each in plain.items() if len(str(each)) <= _VALUE]
    return [f"{key}={_scalar(plain[key])}" for key in dict.fromkeys((*first, *telling, *short)) or plain]


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    text = clip_outcome(text, _URL if text.startswith("http") else _VALUE)
    return f'"{text}"' if " " in text else text


def _page(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    title = _TITLE.search(ended.body[:_HEAD])
    return (title.group(1) or title.group(2)) if title else _quiet(ended)


def _log(ended: _EndedCall) -> str:
    if ended.failure:
        return _failed(ended)
    errors = [line for line in ended.lines() if _LOG_ERROR.search(line[:200])]
    if not errors:
        return _quiet(ended)
    return f"{'at least ' if ended.is_cut else ''}{counted(len(errors), 'error line')}, last: {errors[-1]}"


def _diff(ended: _EndedCall) -> str:
    body = f"\n{ended.body}"
    files = re.findall(r"\ndiff --git a/(\S+)", body) if "\ndiff --git " in body else []
    if not files:
        return _command(ended) or _found_files(ended.lines(), ended.is_cut)
    added = body.count("\n+") - body.count("\n+++ ")
    removed = body.count("\n-") - body.count("\n--- ")
    return f"{counted(len(files), 'file')}, +{added} -{removed}: " + ", ".join(_short_path(path) for path in files[:4])


def _said(ended: _EndedCall) -> str:
    """What people answered."""
    return ended.body


_RULES: dict[Kind, Callable[[_EndedCall], str]] = {
    Kind.CODE: _quiet,
    Kind.TEST_RUN: _tests,
    Kind.API_RESPONSE: _json,
    Kind.SEARCH_RESULT: _search,
    Kind.ERROR_TRACE: _trace,
    Kind.SUBAGENT: _agent,
    Kind.LOG: _log,
    Kind.DIFF: _diff,
    Kind.LISTING: _quiet,
    Kind.COMMAND: _command,
    Kind.WEB_PAGE: _page,
    Kind.TALK: _said,
}
