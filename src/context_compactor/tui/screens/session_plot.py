"""The saw-tooth: tokens over messages, falling at each compaction."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static
from textual_plotext import PlotextPlot

from context_compactor.tui.screens.session_pane import Pane, note
from context_compactor.tui.texts import short_count
from context_compactor.tui.values import Plotted

_MOST_TEETH = 40
_TICKS = 4


class PlotPane(Pane):
    """The plot, and in words what it shows."""

    def compose(self) -> ComposeResult:
        """The plot over its words."""
        yield note()
        yield PlotextPlot(id="saw")
        yield Static(id="saw-words", classes="why", markup=False)

    async def load(self) -> None:
        """Weigh and draw."""
        plotted = await self.source.plotted(self.session_id)
        self.say("" if plotted.points else "Nothing was said yet.")
        plot = self.query_one(PlotextPlot)
        plot.display = bool(plotted.points)
        if plotted.points:
            _draw(plot, plotted)
        self.query_one("#saw-words", Static).update(_words(plotted))


def _draw(plot: PlotextPlot, plotted: Plotted) -> None:
    plt = plot.plt
    plt.clear_figure()
    plt.plot([at for at, _ in plotted.points], [tokens for _, tokens in plotted.points], marker="braille")
    last = plotted.points[-1][0]
    for rule in plotted.levels[:1]:
        height = rule.threshold * plotted.budget_tokens
        plt.plot([plotted.points[0][0], last], [height, height], color="orange", marker="dot")
    teeth = plotted.teeth[-_MOST_TEETH:]
    if teeth:
        plt.scatter([tooth.message for tooth in teeth], [tooth.after for tooth in teeth], color="red", marker="x")
    first, most = plotted.points[0][0], max(plotted.budget_tokens, *(tokens for _, tokens in plotted.points))
    plt.ylim(0, most)
    heights = [float(round(most * step / _TICKS)) for step in range(_TICKS + 1)]
    plt.yticks(heights, [short_count(height) for height in heights])
    places = sorted({float(first + round((last - first) * step / _TICKS)) for step in range(_TICKS + 1)})
    plt.xticks(places, [f"{place:,.0f}" for place in places])
    plt.xlabel("messages")
    plt.title("tokens over messages")
    plot.refresh()


def _words(plotted: Plotted) -> str:
    if not plotted.points:
        return ""
    made = f"{len(plotted.teeth):,} compactions (×)" if plotted.teeth else "no compaction yet"
    marks = ", ".join(f"{rule.level} at {int(rule.threshold * plotted.budget_tokens):,}" for rule in plotted.levels)
    how = "; where the compactions stand is estimated" if plotted.is_estimate and plotted.teeth else ""
    return f"{made} · {marks} (line) · budget {plotted.budget_tokens:,}{how}"
