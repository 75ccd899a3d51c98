"""The evaluation as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from context_compactor.markup import Markup, element, join
from context_compactor.quality.outcome import Evaluation
from context_compactor.quality.page_numbers import (
    cost_section,
    count_section,
    dialogue_section,
    handoff_section,
    loss_section,
    real_section,
    retention_section,
    source_section,
)
from context_compactor.quality.page_told import told_section
from context_compactor.quality.page_words import about_section, explanations, opening, tiles

SECTIONS = (
    tiles,
    retention_section,
    told_section,
    real_section,
    loss_section,
    cost_section,
    source_section,
    handoff_section,
    dialogue_section,
    count_section,
    about_section,
    explanations,
)


def page(found: Evaluation, made_on: str = "") -> str:
    """The page. `made_on` is the date it carries."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", "What compaction keeps"),
        element("style", Markup(style)),
    )
    body = element("body", element("main", *opening(found, made_on), *_sections(found)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _sections(found: Evaluation) -> Iterator[Markup]:
    for section in SECTIONS:
        content = join(section(found))
        if content:
            yield element("section", content)
