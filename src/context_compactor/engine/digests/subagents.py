"""A sub-agent's answer as status, summary, files, tests and recommendations."""

from __future__ import annotations

import re

from msgspec import Struct

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.responses import digest_json
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import clip_line, in_room, to_lines

_FIELD = re.compile(r"[-*\s]{0,4}\*{0,2}([A-Za-z][\w /-]{1,40}?)\*{0,2}\s?:\*{0,2}\s*(.*)")
_HEADING = re.compile(r"#{1,6} (.+)|\*\*([^*]{2,80})\*\*:?$")
_BULLET = re.compile(r"\s{0,6}(?:[-*+•]|\d{1,2}[.)])\s+(.+)")
_ENDINGS = "py|go|tsx?|jsx?|rs|java|md|ya?ml|json|toml|sh|rb|php|cs|cpp|c|h|sql|html|css"
_ENDING = re.compile(rf"\.(?:{_ENDINGS})\b")
_PATH_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@~./-"
_AGENT_ID = re.compile(r"agent_?[iI][dD]\"?: ?\"?([\w-]{4,60})")
_TESTS = re.compile(r"\d{1,7}(?:/\d{1,7})? (?:tests? )?(?:pass(?:ed|ing)?|fail(?:ed|ing|ures?)?)\b[^\n]{0,80}")
_ADVICE = re.compile(
    r"recommend|next step|suggest|follow.?up|finding|conclusion|key (?:point|insight|takeaway|find)|blocker|risk|todo"
    r"|remaining|action|critical|improve|verdict|summary|assessment|root cause|answer",
    re.IGNORECASE,
)
# Sentences that only say that something follows, or that somebody looked.
_FILLER = re.compile(
    r"\W*(?:perfect|great|excellent|okay|ok|done|now,? |let me|i'll|i will|i now|i have|i've|i am|i'm|here's|here are"
    r"|here is|thank|sure|based on|below|this (?:report|document)|the following|after (?:reviewing|analy)"
    r"|to summarize|in summary|this (?:comprehensive|complete|detailed))\b",
    re.IGNORECASE,
)
# Labels behind which the answer stands, and headings above it, the most telling first.
_ANSWER_LABELS = ("summary", "verdict", "conclusion", "answer", "root cause", "result", "outcome", "bottom line")
_ANSWER_TITLES = ("verdict", "conclusion", "answer", "root cause", "bottom line", "key finding", "key insight")
_ANSWER_SECTIONS = ("conclusion", "verdict", "summary", "bottom line", "key finding", "root cause", "assessment")
_ADVISES = re.compile(r"recommend|next step|suggest|follow.?up|action item|required change", re.IGNORECASE)
_CHANGED = re.compile(r"files? (?:modified|changed|created|touched|written|added|updated)|changes made", re.IGNORECASE)
_LABEL = re.compile(
    r"\*\*(?!key|important)[^*]{2,40}:\*\*|(?:file|location|path|source|line|function)s?\b[^:]{0,30}:|<\w+>",
    re.IGNORECASE,
)
_INSIGHT = re.compile(r"\W{0,4}(?:the )?key (?:insight|finding|point|takeaway)\**:\**\s*\S.{20}", re.IGNORECASE)
_LEAST_TELLING = 20
_OPENING = 8
# Where a client puts the id of the agent and what it used.
_ADDED = 600
_SENTENCE = re.compile(r"(.{20,}?[.!?])(?:\s|$)")
_TAG = re.compile(r"<(status|task_id|exit_code|error)>([^<]{1,200})</")
_READ = 60_000
_SINGLE = ("status", "task id", "task", "summary", "result", "verdict", "outcome", "conclusion", "branch", "commit")


class SubagentReport(Struct, frozen=True):
    """What a sub-agent's answer says: its status, its own conclusion, the files it changed, what it advises."""

    status: str = ""
    summary: str = ""
    files: tuple[str, ...] = ()
    tests: str = ""
    advice: tuple[str, ...] = ()


def read_subagent_report(body: str) -> SubagentReport:
    """Read an answer in Markdown or in plain words; parts that it does not have are empty."""
    read = body[:_READ]
    added = read.find("\nagentId: ", max(0, len(read) - _ADDED))  # what a client adds below an answer
    lines = _without_fences(to_lines(read[:added] if added >= 0 else read))
    fields = {name.lower(): value for name, value in _fields(lines).items()}
    sections = _sections(lines)
    summary = next((fields[name] for name in _ANSWER_LABELS if fields.get(name)), "") or _conclusion(lines, sections)
    changed = [path for title, text in sections if _CHANGED.search(title) for path in _paths("\n".join(text))]
    advice = [point for title, text in sections if _ADVISES.search(title) for point in _points(text)]
    tests = _TESTS.search(body, 0, _READ)
    return SubagentReport(
        fields.get("status", ""), _plain(summary), tuple(changed), tests.group() if tests else "", tuple(advice)
    )


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Each heading, or label that ends its line, with the lines below it; what stands behind a label comes first."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        titled = line.startswith(("#", "**")) or line.endswith((":", "**"))
        heading = (_HEADING.match(line) or _FIELD.match(line)) if titled else None
        if heading:
            groups = [group for group in heading.groups() if group]
            found.append((groups[0].strip(" *:#"), [groups[1]] if len(groups) > 1 else []))
        elif line.strip():
            found[-1][1].append(line.strip())
    return found


def _conclusion(lines: list[str], sections: list[tuple[str, list[str]]]) -> str:
    """A heading that is the answer, the words below one that promises it, the last words, or the first ones."""
    for word in _ANSWER_TITLES:
        for title, _ in sections:
            if word in title.partition(": ")[0].lower() and ": " in title:
                return title
    for word in _ANSWER_SECTIONS:
        for title, text in sections:
            heads = re.search(rf"(?:^|\s){word}s?(?:$|:| for\b| of\b)", title[:80], re.IGNORECASE)
            told = next(filter(_says_something, text), "") if heads else ""
            if told:
                return told
    said = [line.strip() for line in lines if line.strip()]
    insight = next(filter(_INSIGHT.match, said), "")
    if insight:
        return insight
    if said and _says_something(said[-1]) and _is_prose(said[-1]):
        return said[-1]
    opening = next((line for line in said[:_OPENING] if _says_something(line) and _is_prose(line)), "")
    return opening or next((title for title, _ in sections if len(title) > _LEAST_TELLING), "") or next(iter(said), "")


def _says_something(line: str) -> bool:
    return len(line) > _LEAST_TELLING and not line.endswith(":") and not _FILLER.match(line) and not _LABEL.match(line)


def _points(text: list[str]) -> list[str]:
    points = [_plain(match.group(1)) for match in map(_BULLET.match, text) if match]
    return [point for point in points or map(_plain, text[:2]) if _says_something(point.ljust(_LEAST_TELLING + 1, "."))]


def _plain(text: str) -> str:
    """The first sentence of a text without its marks of emphasis."""
    bare = text.replace("**", "").replace("__", "").strip()
    point = _BULLET.match(bare)
    bare = point.group(1) if point else bare
    sentence = _SENTENCE.match(bare)
    return (sentence.group(1) if sentence else bare).strip()


def digest_subagent(call: ToolCall | None, output: ToolOutput) -> list[str]:
    """What the agent says it did, which files it names, what it advises."""
    if output.body.lstrip()[:1] in ("{", "["):
        return digest_json(call, output)
    lines = _without_fences(to_lines(output.body))
    fields = _fields(lines)
    summary = [] if any(label.lower() == "summary" for label in fields) else _opening(lines)
    return [
        *(f"{name}: {clip_line(value, 170)}" for name, value in fields.items()),
        *summary,
        *_labelled("files", _paths(output.body)),
        *_labelled("tests", dict.fromkeys(clip_line(found, 100) for found in _TESTS.findall(output.body[:_READ]))),
        *_advice(lines),
        *_labelled("agent", dict.fromkeys(_AGENT_ID.findall(output.body[-2000:]))),
    ]


def _without_fences(lines: list[str]) -> list[str]:
    """The prose of a Markdown text: no code, no tables."""
    kept: list[str] = []
    fenced = False
    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            kept.append(line.rstrip())
    return kept


def _fields(lines: list[str]) -> dict[str, str]:
    """Labels as the agent wrote them, with what stands behind."""
    found: dict[str, str] = dict(match for line in lines[:20] for match in _TAG.findall(line))
    known = {label.lower() for label in found}
    for line in lines[:400]:
        match = _FIELD.match(line) if ":" in line[:60] else None
        label = match.group(1).lower() if match else ""
        if match and label in _SINGLE and label not in known and match.group(2).strip(" *"):
            found[match.group(1)] = match.group(2).strip(" *")
            known.add(label)
    return found


def _opening(lines: list[str]) -> list[str]:
    """The first paragraph that is neither a heading nor a list."""
    plain = (line.strip() for line in lines if len(line) > 30)
    prose = [line for line, _ in zip(filter(_is_prose, plain), range(6), strict=False)]
    first = next((line for line in prose if not _FILLER.match(line)), next(iter(prose), ""))
    return [clip_line(first)] if first else []


def _is_prose(line: str) -> bool:
    return not _HEADING.match(line) and not _BULLET.match(line)


def _paths(body: str) -> dict[str, None]:
    """Words that end like a file, found from their ending back: far cheaper than trying every word."""
    found: dict[str, None] = {}
    for match in _ENDING.finditer(body, 0, _READ):
        before = body[max(0, match.start() - 200) : match.start()]
        stem = before[len(before.rstrip(_PATH_CHARACTERS)) :]
        if stem and not stem.startswith("//"):
            found[stem + match.group()] = None
    return found


def _labelled(label: str, names: dict[str, None]) -> list[str]:
    return [f"{label}: {in_room(names, 175)}"] if names else []


def _advice(lines: list[str]) -> list[str]:
    """The headings, and under those that advise or conclude their first points."""
    found: list[str] = []
    headings: list[str] = []
    room = 0
    for line in lines:
        titled = line.startswith("#") or line.endswith((":", "**"))
        heading = (_HEADING.match(line) or _FIELD.match(line)) if titled else None
        if heading:
            title = (heading.group(1) or heading.group(heading.lastindex or 1) or "").strip(" *:#")
            room = 3 if _ADVICE.search(title) else 0
            headings += [clip_line(title, 60)] if line.startswith("#") else []
            found += [f"{clip_line(title, 80)}:"] if room else []
        elif room and any(map(str.isalnum, line)):
            point = _BULLET.match(line)
            found.append(f"- {clip_line(point.group(1) if point else line, 150)}")
            room -= 1
    told = [line for line, after in zip(found, [*found[1:], ""], strict=False) if line[:2] == "- " or after[:2] == "- "]
    return [*([f"headings: {in_room(headings, 175, ' · ')}"] if headings else []), *told[:14]]
