"""A web page as its title, its headings and its first paragraph."""

from __future__ import annotations

import html
import re
from itertools import islice

from context_compactor.apply.digests.json_value import digest_json
from context_compactor.apply.digests.text import clip, in_room, to_lines
from context_compactor.classify.envelope import Output
from context_compactor.messages.message import ToolCall

_HTML = re.compile(r"\s*<(?:!doctype html|html|head|body)\b|[\s\S]{0,3000}</(?:p|div|h1|title)>", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,400})", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-4]\b[^<>]{0,400}>", re.IGNORECASE)
_PARAGRAPH = re.compile(r"<p\b[^<>]{0,400}>", re.IGNORECASE)
_HEADING_LENGTH = 600
_PARAGRAPH_LENGTH = 2000
_TAG = re.compile(r"<[^>]{0,400}>")
_MARKDOWN = re.compile(r"(#{1,4}) (\S.*)")
_READ = 2_000_000


def digest_web_page(call: ToolCall | None, output: Output) -> list[str]:
    """Title, headings in order, and the first paragraph with more than a few words."""
    body = output.body[:_READ]
    if body.lstrip()[:1] in ("{", "["):
        return digest_json(call, output)
    found = _html(body) if _HTML.match(body) else None
    title, headings, paragraphs = found if found and any(found) else _markdown(body)
    first = next((text for text in paragraphs if len(text) > 40), next(iter(paragraphs), ""))
    listed = [f"headings: {in_room(headings, 400, ' · ')}"] if headings else []
    return [*([f"title: {clip(title, 170)}"] if title else []), *_split(listed), *([clip(first)] if first else [])]


def _split(listed: list[str]) -> list[str]:
    """Two lines of headings, each short enough."""
    return [part for line in listed for part in (line[:185], line[185:370]) if part]


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
    return clip(html.unescape(_TAG.sub(" ", fragment)), 400)


def _markdown(body: str) -> tuple[str, list[str], list[str]]:
    lines = [line.strip() for line in to_lines(body)]
    headings = [match.group(2) for match in map(_MARKDOWN.match, lines) if match]
    prose = [line for line in lines if line and not line.startswith(("#", "-", "*", "|", "```", ">", "[", "!", "<"))]
    return headings[0] if headings else "", [clip(text, 80) for text in headings[1:]], prose
