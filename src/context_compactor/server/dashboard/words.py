"""Times and addresses as a page shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from context_compactor.figures import ago, moment
from context_compactor.markup import Markup, element


def when(stamp: str, now: datetime) -> Markup:
    """A time as its distance from now, with the time itself behind it."""
    at = moment(stamp)
    if at is None:
        return element("span", "–", class_="faint")
    exact = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return element("time", ago((now - at).total_seconds()), datetime=stamp, title=exact)


def path(*parts: str, **query: object) -> str:
    """An address of this server; each part may hold anything."""
    place = "/" + "/".join(quote(part, safe="", errors="replace") for part in parts)
    asked = "&".join(
        f"{name}={quote(str(value), safe='', errors='replace')}"
        for name, value in query.items()
        if value not in ("", None)
    )
    return f"{place}?{asked}" if asked else place
