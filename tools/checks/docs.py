"""Docs that follow from the code are up to date, links lead somewhere, and no field is left out."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from context_compactor.engine.report import Report
from context_compactor.errors import PACKAGE
from tools.reference import PAGES

_LINK = re.compile(r"\]\(([^)#\s]+)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_INSTALL = re.compile(r"\b(?:pip3?|pipx|uv pip|uv tool) install(?: -\S+)* +('[^']+'|\"[^\"]+\"|[^\s`]+)")
_REQUIREMENT = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")


def problems() -> list[str]:
    """What is wrong with the docs."""
    return [*_stale_pages(), *_missing_report_fields(), *dead_links(), *other_installs()]


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


def other_installs() -> Iterator[str]:
    """Lines that tell to install this package in another way than the one that works, or with an extra it has not."""
    extras = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pages = [*Path().glob("*.md"), *Path("docs").rglob("*.*"), *Path("examples").glob("*.*"), *Path("src").rglob("*.*")]
    for page in (page for page in pages if page.suffix in (".md", ".yaml", ".service", ".py")):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for command in _INSTALL.finditer(line):
                if problem := _install_problem(command[1].strip("'\""), set(extras)):
                    yield f"{page}:{number}: {problem}"


def _install_problem(target: str, extras: set[str]) -> str:
    named = _REQUIREMENT.fullmatch(target)
    if named is None or named[1] not in (PACKAGE, "{PACKAGE}"):
        return f"tells to install {target!r}; what works is {PACKAGE!r}, with extras in brackets"
    unknown = set(filter(None, (named[2] or "").split(","))) - extras - {"{extra}"}
    return f"names extras that there are not: {', '.join(sorted(unknown))}" if unknown else ""
