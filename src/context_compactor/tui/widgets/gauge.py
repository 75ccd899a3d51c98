"""How full a context is, over the panes of its session: in words, as a bar with the levels, and for how long."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from context_compactor.levels import Level
from context_compactor.tui.texts import cut_line, gauge_bar, in_width, percent, short_count
from context_compactor.tui.values import Standing

SIGNS: dict[Level | None, str] = {None: "○", Level.SOFT: "◔", Level.AGGRESSIVE: "◑", Level.EMERGENCY: "●"}
_SOON = 1_000_000


def level_words(level: Level | None) -> str:
    """A level as a sign and a word."""
    return f"{SIGNS[level]} {level.value if level else 'below soft'}"


def level_style(level: Level | None) -> str:
    """The name of its colour."""
    return level.value if level else "ease"


class Gauge(Widget):
    """Three lines: name and level, the bar, the forecast."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "gauge--title",
        "gauge--faint",
        "gauge--ease",
        "gauge--soft",
        "gauge--aggressive",
        "gauge--emergency",
    }

    standing: reactive[Standing | None] = reactive(None)

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self._session = session_id

    def render(self) -> Text:
        """All of it, as wide as there is room."""
        width, standing = max(self.size.width, 20), self.standing
        title = self.get_component_rich_style("gauge--title", partial=True)
        if standing is None:
            return Text(in_width(cut_line(self._session), width), style=title, no_wrap=True, overflow="crop")
        line = standing.line
        colour = self.get_component_rich_style(f"gauge--{level_style(line.level)}", partial=True)
        faint = self.get_component_rich_style("gauge--faint", partial=True)
        badge = level_words(line.level)
        about = cut_line(" · ".join(filter(None, (line.id, line.model, line.dialect))))
        text = Text(no_wrap=True, overflow="crop")
        text.append(in_width(about, width - len(badge) - 1) + " ", style=title)
        text.append(f"{badge}\n", style=colour)
        share = f" {percent(line.share)}"
        bar = gauge_bar(line.share, width - len(share), tuple(rule.threshold for rule in line.levels))
        text.append(bar, style=colour)
        text.append(f"{share}\n", style=colour)
        text.append(in_width(_forecast(standing, width), width), style=faint)
        return text


def _forecast(standing: Standing, width: int) -> str:
    """Tokens of the budget, then the levels with how far away they are, as many as there is room for."""
    line = standing.line
    said = [f"{line.tokens:,} of {standing.budget_tokens:,} tokens", f"{line.messages:,} messages"]
    if standing.turns_left is not None and standing.turns_left < _SOON:
        said.append(f"room for ~{standing.turns_left:,} turns")
    for rule in line.levels:
        starts = int(rule.threshold * standing.budget_tokens)
        turns = standing.turns_until(starts)
        away = f" in ~{turns:,} turns" if turns and turns < _SOON else ""
        said.append(f"{rule.level} at {short_count(starts)}{away}")
    shown = said[0]
    for part in said[1:]:
        if len(shown) + 3 + len(part) > width:
            break
        shown += f" · {part}"
    return shown
