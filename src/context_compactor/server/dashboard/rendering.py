"""The templates of the pages: their environment, and what they show times, texts, levels and addresses with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from context_compactor import __version__
from context_compactor.engine.report import Report
from context_compactor.server.dashboard.caches import SessionSummary
from context_compactor.sessions.log import LoggedCompaction
from context_compactor.sessions.token_series import compaction_corners
from context_compactor.sessions.views import DiffSide
from context_compactor.settings import Level
from context_compactor.text import ago, format_count, parse_time, percent, plural, short_count, truncated_text
from context_compactor.tokens.budget import level_at

_MAX_TEXT = 2_000
"""Characters of a conversation in one place of a list; the rest is behind a recall."""
_LEVEL_SIGNS: dict[Level | None, str] = {None: "○", Level.SOFT: "◔", Level.AGGRESSIVE: "◑", Level.EMERGENCY: "●"}
_SPARK_WIDTH, _SPARK_HEIGHT = 96, 22
_BETWEEN_ELEMENTS = re.compile(r">\s*\n\s*<")


def render(template: str, values: dict[str, Any], part: str = "") -> str:
    """A template, or only one block of it. The lines of a template leave no spaces between elements."""
    found = ENVIRONMENT.get_template(template)
    html = "".join(found.blocks[part](found.new_context(values))) if part else found.render(values)
    return _BETWEEN_ELEMENTS.sub("><", html).strip()


def page_path(*parts: str, **query: object) -> str:
    """An address of this server; each part may hold anything."""
    path = "/" + "/".join(quote(part, safe="", errors="replace") for part in parts)
    given = "&".join(
        f"{name}={quote(str(value), safe='', errors='replace')}"
        for name, value in query.items()
        if value not in ("", None)
    )
    return f"{path}?{given}" if given else path


def _time_ago(stamp: str) -> Markup:
    """A time as its distance from now, with the time itself behind it."""
    at = parse_time(stamp)
    if at is None:
        return Markup('<span class="faint">–</span>')
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    distance = ago((datetime.now(UTC) - at).total_seconds())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(stamp, exact, distance)


def _bounded_text(text: str, most: int = _MAX_TEXT) -> Markup:
    """Text of a conversation: bounded, and apart from what is around it whatever its direction."""
    return Markup("<bdi>{}</bdi>").format(truncated_text(text, most))


def _sparkline_points(points: Sequence[tuple[float, float]]) -> str:
    """The corners of a small line; nothing when there are too few for one."""
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return ""
    first, last = points[0][0], points[-1][0]
    most = max(y for _, y in points) or 1
    return " ".join(
        f"{1 + (x - first) / (last - first) * (_SPARK_WIDTH - 2):.1f},"
        f"{_SPARK_HEIGHT - 2 - y / most * (_SPARK_HEIGHT - 4):.1f}"
        for x, y in points
    )


def _corners(session: SessionSummary, active: Sequence[LoggedCompaction]) -> Sequence[tuple[float, float]]:
    return compaction_corners([(each.position, each.note) for each in active], session.head, session.tokens)


def _targets_by_tier(report: Report) -> dict[str, tuple[Any, ...]]:
    """What a report says of each target; referenced is what nothing else in it speaks of."""
    named = {each.id for each in report.summarized} | {each.id for each in report.discarded}
    return {
        "drop": report.discarded,
        "summarize": report.summarized,
        "reference": tuple(each for each in report.archived if each.id not in named),
        "keep": report.preserved,
    }


def _message_text(side: DiffSide) -> str:
    """All that a message says; a line about it when that is no text."""
    content = side.raw.get("content")
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in content or () if isinstance(block, dict)]
    return "\n\n".join(each for each in texts if isinstance(each, str)) or side.words


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("context_compactor.server.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": _time_ago,
        "text": _bounded_text,
        "count": format_count,
        "short_count": short_count,
        "percent": percent,
        "plural": plural,
        "share_of": lambda part, whole: part / whole if whole else None,
        "level_at": level_at,
        "level_sign": _LEVEL_SIGNS.__getitem__,
        "level_class": lambda level: f"at-{level or 'ease'}",
        "percent_position": lambda share: f"{100 * min(max(share, 0.0), 1.0):.2f}%",
        "sparkline_points": _sparkline_points,
        "corners": _corners,
        "targets_by_tier": _targets_by_tier,
        "message_text": _message_text,
    }
    made.globals |= {"path": page_path, "version": __version__}
    made.globals["ui"] = made.get_template("macros.html").module
    return made


ENVIRONMENT = _environment()
