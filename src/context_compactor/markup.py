"""HTML and SVG elements as text. Everything that is not markup is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: object) -> Markup:
    """One element. An attribute's name may end in `_` and has `-` where it is written with `_`.

    True writes an attribute without a value; None and False leave it out.
    """
    opening = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    written = name.rstrip("_").replace("_", "-")
    return f" {written}" if value is True else f' {written}="{escape(str(value))}"'


def join(parts: Iterable[str]) -> Markup:
    """Several pieces, one after the other; plain text is escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table whose first column names the row; wide ones can be scrolled on a narrow screen."""
    heading = element("tr", *(element("th", cell, scope="col") for cell in head))
    lines = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    whole = element("table", element("caption", caption), element("thead", heading), element("tbody", *lines))
    return element("div", whole, class_="wide", tabindex=0, role="region", aria_label=caption)


def folded(summary: str, *content: str) -> Markup:
    """Something that is unfolded with a click."""
    return element("details", element("summary", summary), *content)
