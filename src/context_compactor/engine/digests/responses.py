"""API responses and web pages: the status, shape and key values of one, the headings and first paragraph of the
other."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.digests.output import informative_lines
from context_compactor.facts.outputs import ToolOutput
from context_compactor.text import LINE_LIMIT, clip_line, in_room, plural, to_lines, wrapped

STATUS_LINE = re.compile(r"HTTP/[\d.]+ \d{3}[^\n]{0,80}")
FIRST_KEYS = (
    "status status_code statusCode error errors message code success ok state conclusion result id identifier number "
    "name title path line url login type"
).split()
_PROSE_KEYS = frozenset("body description text content summary message error detail reason output result".split())
_PROSE_ROOM = 60
_PAIR = re.compile(r'"([^"\\\n]{1,60})"\s{0,4}:\s{0,4}("(?:[^"\\\n]|\\.){0,160}"|-?[\d.eE+-]{1,30}|true|false|null)')
_DECODE_LIMIT = 4_000_000
_VALUE = 90
_INLINE = 110
_BRIEF_DEPTH = 3


class _Number(str):
    """A number exactly as it was written."""

    __slots__ = ()


def digest_json(_: ToolCall | None, output: ToolOutput) -> list[str]:
    """HTTP status if shown, then the value field by field, long and repeated parts as their shape."""
    body = output.body.strip()
    status = STATUS_LINE.match(body)
    if status:
        body = body.replace("\r\n", "\n").partition("\n\n")[2].strip()
    top = [clip_line(status.group())] if status else []
    lines = list(_render(body))
    return [*top, *lines] if lines else [*top, *informative_lines(ToolOutput(body, output.exit_code))]


def _render(body: str) -> Iterator[str]:
    value = _decode(body)
    if isinstance(value, dict):
        yield from _fields(value)
    elif isinstance(value, list):
        yield from _items(value)
    elif body[:1] in ("{", "["):
        decoded = (_decode(line.strip()) for line in body[:_DECODE_LIMIT].split("\n"))
        records = [value for value in decoded if value is not None]  # JSON lines
        pairs = dict.fromkeys(f"{key}: {value}" for key, value in _PAIR.findall(body[:200_000]))
        if len(records) > 1:
            yield from _items(records)
        elif pairs:  # JSON that is cut or broken
            yield from ("JSON, cut off; fields found:", *wrapped([clip_line(pair, 120) for pair in pairs], 10))


def _decode(body: str) -> Any:
    if body[:1] not in ("{", "[") or len(body) > _DECODE_LIMIT:
        return None
    try:
        return json.loads(body, parse_float=_Number, parse_int=_Number, parse_constant=_Number)
    except (ValueError, RecursionError):
        return None


def _fields(value: dict[str, Any]) -> list[str]:
    plain = {key: each for key, each in value.items() if not isinstance(each, dict | list)}
    prose = [key for key in plain if key in _PROSE_KEYS and len(str(plain[key])) > _PROSE_ROOM]
    first = [key for key in FIRST_KEYS if key in plain]
    order = [key for key in dict.fromkeys((*first, *plain)) if key not in prose]
    lines = wrapped([f"{clip_line(key, 60)}: {clip_line(_scalar(plain[key]), _VALUE)}" for key in order], 6)
    lines += [clip_line(f"{key}: {_scalar(plain[key])}") for key in prose]
    nested = [(key, each) for key, each in value.items() if isinstance(each, dict | list)]
    heads = [f"{clip_line(key, 60)}: " for key, _ in nested]
    lines += [
        head + _brief(each, LINE_LIMIT - len(head) - 4) for head, (_, each) in zip(heads[:14], nested, strict=False)
    ]
    return lines + (["also " + in_room([clip_line(key, 60) for key, _ in nested[14:]])] if nested[14:] else [])


def _items(values: list[Any]) -> list[str]:
    if not values:
        return []
    keys = dict.fromkeys(key for value in values[:50] if isinstance(value, dict) for key in value)
    shape = f" of {{{in_room((clip_line(key, 40) for key in keys), 130)}}}" if keys else ""
    shown = [f"- {_brief(value, LINE_LIMIT - 6)}" for value in values[:3]]
    return [f"{plural(len(values), 'item')}{shape}", *shown, *_tallies(values)]


def _tallies(values: list[Any]) -> list[str]:
    """How often each value of a status-like field comes."""
    lines: list[str] = []
    for key in ("status", "state", "type", "level", "severity", "conclusion"):
        counts = Counter(each[key] for each in values if isinstance(each, dict) and isinstance(each.get(key), str))
        if len(counts) > 1:
            lines.append(
                f"{key}: " + in_room(f"{clip_line(name, 40)} {count:,}" for name, count in counts.most_common())
            )
    return lines


def _brief(value: Any, room: int, depth: int = 0) -> str:
    if isinstance(value, dict):
        return _brief_object(value, room, depth)
    if isinstance(value, list):
        inner = ", ".join(_brief(each, room // 2, depth + 1) for each in value[:3]) if depth < _BRIEF_DEPTH else ""
        more = ", …" if len(value) > 3 else ""
        return clip_line(f"[{len(value):,}] {inner}{more}" if value else "[]", max(room, 12))
    return clip_line(_scalar(value), max(min(room, _VALUE), 12))


def _brief_object(value: dict[str, Any], room: int, depth: int) -> str:
    if depth >= _BRIEF_DEPTH or not value:
        return "{" + in_room((clip_line(key, 40) for key in value), max(room - 2, 12)) + "}"
    order = sorted(value, key=lambda key: (key not in FIRST_KEYS, isinstance(value[key], dict | list)))
    pairs = [f"{clip_line(key, 40)}: {_brief(value[key], _INLINE // (depth + 1), depth + 1)}" for key in order[:12]]
    return "{" + in_room([*pairs, *order[12:]], max(room - 2, 12)) + "}"


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    return text if isinstance(value, _Number) or text.isidentifier() else f'"{text}"'


_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body)\b|[\s\S]{0,3000}</(?:p|div|h1|title)>", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,400})", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-4]\b[^<>]{0,400}>", re.IGNORECASE)
_PARAGRAPH = re.compile(r"<p\b[^<>]{0,400}>", re.IGNORECASE)
_HEADING_LENGTH = 600
_PARAGRAPH_LENGTH = 2000
_TAG = re.compile(r"<[^>]{0,400}>")
_MARKDOWN = re.compile(r"(#{1,4}) (\S.*)")
_READ = 2_000_000


def digest_web_page(call: ToolCall | None, output: ToolOutput) -> list[str]:
    """Title, headings in order, and the first paragraph with more than a few words."""
    body = output.body[:_READ]
    if body.lstrip()[:1] in ("{", "["):
        return digest_json(call, output)
    found = _html(body) if _HTML.match(body) else None
    title, headings, paragraphs = found if found and any(found) else _markdown(body)
    first = next((text for text in paragraphs if len(text) > 40), next(iter(paragraphs), ""))
    listed = f"headings: {in_room(headings, 400, ' · ')}" if headings else ""
    lines = (f"title: {clip_line(title, 170)}" if title else "", listed[:185], listed[185:370], clip_line(first))
    return [line for line in lines if line]


def _html(body: str) -> tuple[str, list[str], list[str]]:
    title = _TITLE.search(body)
    headings = _inside(body, _HEADING, "</h", _HEADING_LENGTH, 200)
    paragraphs = _inside(body, _PARAGRAPH, "</p", _PARAGRAPH_LENGTH, 20)
    return _plain(title.group(1)) if title else "", headings, paragraphs


def _inside(body: str, opening: re.Pattern[str], closing: str, length: int, most: int) -> list[str]:
    """The text of the first elements that close within a reasonable length."""
    found: list[str] = []
    for match in islice(opening.finditer(body), most):
        end = body.find(closing, match.end(), match.end() + length)
        text = _plain(body[match.end() : end]) if end >= 0 else ""
        found += [text] if text else []
    return found


def _plain(fragment: str) -> str:
    return clip_line(html.unescape(_TAG.sub(" ", fragment)), 400)


def _markdown(body: str) -> tuple[str, list[str], list[str]]:
    lines = [line.strip() for line in to_lines(body)]
    headings = [match.group(2) for match in map(_MARKDOWN.match, lines) if match]
    prose = [line for line in lines if line and not line.startswith(("#", "-", "*", "|", "```", ">", "[", "!", "<"))]
    return headings[0] if headings else "", [clip_line(text, 80) for text in headings[1:]], prose
