"""Markdown as styled text that can be selected, and a widget for a text that may still be growing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from textual.containers import Vertical
from textual.content import Content
from textual.highlight import highlight
from textual.widgets import Static

from context_compactor.tui.formatting import cut_line, safe_text

_MARKS = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}
_CODE = "$text-accent"
_FAINT = "dim"
_WIDEST_CELL = 60
_BULLETS = "•◦▪"


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("reference")


def render_markdown(text: str) -> Content:
    """A text as it is read. It must be harmless already."""
    blocks = [block.rstrip() for block in _blocks(_Tokens(_parser().parse(text)))]
    return Content("\n\n").join(block for block in blocks if block)


def finished_length(text: str) -> int:
    """How much of a text that is still being written will not be read differently, whatever follows.

    That is everything before the last block that begins behind a blank line, where no code is left open.
    """
    end = at = 0
    is_blank = True
    for line, fence in _lines(text):
        if is_blank and line.strip() and not fence and not line.startswith((" ", "\t")):
            end = at
        is_blank = not line.strip()
        at += len(line)
    return end


def open_fence(text: str) -> str:
    """The line that begins the code which a text ends in; nothing when it does not end in code."""
    opened = ""
    is_open = False
    for line, fence in _lines(text):
        if fence and not is_open:
            opened = line
        is_open = bool(fence)
    return opened if is_open else ""


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line, with the mark of the code that is open behind it."""
    fence = ""
    for line in text.splitlines(keepends=True):
        words = line.strip()
        if fence:
            if words.startswith(fence) and not words.strip(fence[0]):
                fence = ""
        elif words.startswith(("```", "~~~")):
            fence = words[: len(words) - len(words.lstrip(words[0]))]
        yield line, fence


class _Tokens:
    """The tokens of a text, one after the other."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def until(self, closing: str = "") -> Iterator[Token]:
        """The next tokens, up to the one that closes what was opened."""
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.type == closing:
                return
            yield token


def _blocks(tokens: _Tokens, closing: str = "", depth: int = 0) -> Iterator[Content]:
    for token in tokens.until(closing):
        match token.type:
            case "heading_open":
                yield _inside(tokens, "heading_close").stylize("bold" if token.tag > "h2" else "bold underline")
            case "paragraph_open":
                yield _inside(tokens, "paragraph_close")
            case "fence" | "code_block":
                yield _code(token)
            case "bullet_list_open" | "ordered_list_open":
                yield _list(tokens, token, depth)
            case "blockquote_open":
                yield _quoted(Content("\n\n").join(_blocks(tokens, "blockquote_close", depth)))
            case "table_open":
                yield _table(tokens)
            case "hr":
                yield Content("─" * 20).stylize(_FAINT)
            case "inline":
                yield _inline(token)


def _inside(tokens: _Tokens, closing: str) -> Content:
    return Content("").join(_inline(token) for token in tokens.until(closing) if token.type == "inline")


def _inline(token: Token) -> Content:
    parts: list[Content] = []
    marks: list[str] = []
    links: list[str] = []
    for child in token.children or ():
        match child.type:
            case "text":
                parts.append(_styled(child.content, marks))
            case "softbreak" | "hardbreak":
                parts.append(Content("\n"))
            case "code_inline":
                parts.append(_styled(f"`{child.content}`", [*marks, _CODE]))
            case "image":
                parts.append(_styled(f"[image: {child.content}] ({child.attrGet('src')})", [*marks, _FAINT]))
            case "link_open":
                links.append(str(child.attrGet("href") or ""))
                marks.append(_MARKS["link"])
            case "link_close":
                marks.pop()
                address = links.pop()
                if address and not str(parts[-1]).endswith(address):
                    parts.append(_styled(f" ({cut_line(address)})", [_FAINT]))
            case kind if kind.endswith("_open"):
                marks.append(_MARKS.get(kind.removesuffix("_open"), ""))
            case kind if kind.endswith("_close"):
                marks.pop()
            case _:
                parts.append(_styled(child.content, marks))
    return Content("").join(parts)


def _styled(text: str, marks: Sequence[str]) -> Content:
    style = " ".join(mark for mark in marks if mark)
    return Content(text).stylize(style) if style else Content(text)


def _code(token: Token) -> Content:
    language = token.info.split()[0] if token.info.split() else "text"
    code = token.content.rstrip("\n")
    body = highlight(code, language=language) if code else Content("")
    opening, closing = Content(f"```{token.info}").stylize(_FAINT), Content("```").stylize(_FAINT)
    return Content("\n").join((opening, body, closing))


def _list(tokens: _Tokens, opened: Token, depth: int) -> Content:
    is_ordered = opened.type == "ordered_list_open"
    number = int(opened.attrGet("start") or 1)
    items: list[Content] = []
    for token in tokens.until(opened.type.replace("_open", "_close")):
        if token.type != "list_item_open":
            continue
        mark = f"{number}. " if is_ordered else f"{_BULLETS[min(depth, len(_BULLETS) - 1)]} "
        number += 1
        body = Content("\n").join(_blocks(tokens, "list_item_close", depth + 1))
        items.append(Content(mark) + _indented(body, " " * len(mark)))
    return Content("\n").join(items)


def _indented(body: Content, by: str) -> Content:
    return Content(f"\n{by}").join(body.split("\n"))


def _quoted(body: Content) -> Content:
    bar = Content("│ ").stylize(_FAINT)
    return Content("\n").join(bar + line for line in body.split("\n"))


def _table(tokens: _Tokens) -> Content:
    rows: list[list[Content]] = []
    heads = 0
    for token in tokens.until("table_close"):
        match token.type:
            case "tr_open":
                rows.append([])
            case "th_open" | "td_open":
                cell = _inside(tokens, token.type.replace("_open", "_close"))
                rows[-1].append(cell.stylize("bold") if token.type == "th_open" else cell)
            case "thead_close":
                heads = len(rows)
    columns = max(map(len, rows), default=0)
    widths = [
        min(max((cell_len(row[at].plain) for row in rows if at < len(row)), default=0), _WIDEST_CELL)
        for at in range(columns)
    ]
    lines = [Content(" │ ").join(_cell(cell, width) for cell, width in zip(row, widths, strict=False)) for row in rows]
    if heads:
        lines.insert(heads, Content("─┼─".join("─" * width for width in widths)).stylize(_FAINT))
    return Content("\n").join(lines)


def _cell(cell: Content, width: int) -> Content:
    return cell + Content(" " * max(width - cell_len(cell.plain), 0))


_CHUNK_SIZE, _MAX_OPEN, _MAX_FENCE = 1_500, 4_000, 80
"""Characters that are drawn in one piece, about, and at most: a piece of code or a paragraph may be long."""


class Prose(Vertical):
    """Text that is read as Markdown. Nothing in it drives the terminal."""

    def __init__(self, text: str = "", classes: str = "") -> None:
        super().__init__(classes=f"prose {classes}".rstrip())
        self._raw = 0
        """How many characters were added."""
        self._open = ""
        """What may still be read differently."""
        self._last: Static | None = None
        self._first = text

    def on_mount(self) -> None:
        if self._first:
            self.add(self._first)

    @property
    def length(self) -> int:
        return self._raw

    def add(self, text: str) -> None:
        self._raw += len(text)
        self._open += safe_text(text)
        while (at := _split_at(self._open)) > 0:
            piece = self._open[:at]
            self._draw(piece)
            fence = open_fence(piece)
            self._open, self._last = (fence if len(fence) < _MAX_FENCE else "") + self._open[at:], None
        self._draw(self._open)

    def clear(self) -> None:
        self._raw, self._open, self._last = 0, "", None
        self.remove_children()

    def _draw(self, text: str) -> None:
        content = render_markdown(text) if text.strip() else Content("")
        if self._last is None:
            if not text.strip():
                return
            self._last = Static(content, classes="chunk")
            self.mount(self._last)
        else:
            self._last.update(content)


def _split_at(text: str) -> int:
    """Where to end a piece; 0 while all of it is the last one."""
    end = finished_length(text)
    if end > _CHUNK_SIZE:
        return finished_length(text[: text.find("\n\n", _CHUNK_SIZE) + 3]) or end
    if len(text) <= _MAX_OPEN:
        return 0
    line = text.rfind("\n", 1, _MAX_OPEN)
    return line + 1 if line > len(open_fence(text)) else _MAX_OPEN
