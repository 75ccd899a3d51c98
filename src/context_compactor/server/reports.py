"""A report as its caller sees it: with the session's own name, and originals by the address that recalls them."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import structs

from context_compactor.report import Report


def outside(report: Report, session_id: str) -> Report:
    """The report for whoever knows the session by this id. Where the server keeps its store is its own business."""
    path = f"/v1/sessions/{quote(session_id, safe='', errors='replace')}/archive"
    archived = tuple(structs.replace(each, location=f"{path}/{each.id}") for each in report.archived)
    return structs.replace(report, session_id=session_id, archived=archived)
