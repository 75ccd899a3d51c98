"""Times in logs and messages, as they are stored: ISO 8601 in UTC, with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

# Seconds up to the year 5138; what is more are milliseconds.
_MOST_SECONDS = 1e11


def utc_time(value: object) -> str:
    """A time as it is stored; empty when it is none. Numbers are seconds or milliseconds since 1970."""
    try:
        if isinstance(value, str):
            at = datetime.fromisoformat(value)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            at = datetime.fromtimestamp(value if value < _MOST_SECONDS else value / 1000, UTC)
        else:
            return ""
        return at.astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
