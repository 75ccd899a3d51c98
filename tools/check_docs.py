"""Docs that follow from the code are up to date, links lead somewhere, and no field is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from context_compactor.report import Report
from tools.reference import PAGES

_LINK = re.compile(r"\]\(([^)#\s]+)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def problems() -> list[str]:
    """What is wrong with the docs."""
    return [*_stale_pages(), *_missing_report_fields(), *dead_links()]


def _stale_pages() -> Iterator[str]:
    for path, make in PAGES.items():
        if not path.exists() or path.read_text(encoding="utf-8") != make():
            yield f"{path} is not what the code says: run `make reference`"


def _missing_report_fields() -> Iterator[str]:
    page = Path("docs/reference/report.md").read_text(encoding="utf-8")
    for name in Report.unchanged("", tokens=0, messages=0).to_dict():
        if f"`{name}`" not in page:
            yield f"docs/reference/report.md does not mention `{name}`"


def dead_links() -> Iterator[str]:
    """Links in Markdown pages to files that are not there."""
    for page in [*Path().glob("*.md"), *Path("docs").rglob("*.md"), *Path("examples").glob("*.md")]:
        for target in _LINK.findall(_CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page}: the link to {target} leads nowhere"
