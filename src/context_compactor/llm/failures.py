"""What an error of a provider means to us. The SDKs name their errors alike, so one reading serves all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import Any

from context_compactor.errors import ModelDenied, ModelError, ModelOverflow, ModelUnavailable
from context_compactor.measure.overflow import is_overflow

_DENIED_STATUS = frozenset({401, 402, 403})
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_DENIED_KINDS = frozenset(
    "authentication_error permission_error billing_error invalid_api_key insufficient_quota "
    "access_terminated_error".split()
)
# Waiting does not help against these, although they come as "too many requests".
_NO_MONEY = ("insufficient_quota", "credit balance is too low", "exceeded your current quota", "billing_hard_limit")
_MOST_WORDS = 500
_ORIGIN = re.compile(r"https?://[^/?#\s]+")
# Without a connection nothing was read; behind a gateway that lost its patience somebody may still be writing.
_NEVER_SENT = frozenset(
    "ConnectError ConnectTimeout PoolTimeout ProxyError UnsupportedProtocol LocalProtocolError".split()
)
_GATEWAY_TIMEOUTS = frozenset({504, 524})


def wire_errors(sdk: ModuleType) -> tuple[type[Exception], ...]:
    """The errors that a call by this SDK may raise: its own, and those of its HTTP library in mid-stream."""
    libraries = (sys.modules.get(name) for name in ("httpx2", "httpx"))
    used = [library.HTTPError for library in libraries if library and library.Timeout is sdk.Timeout]
    return (sdk.APIError, *used)


def understood(error: Exception, name: str, *, is_begun: bool = False) -> ModelError:
    """The error of our tree for an error of an SDK, in words that name the model; `is_begun` after the first event."""
    status = getattr(error, "status_code", None)
    if status is not None and 300 <= status < 400:
        return ModelError(f"{name}: HTTP {status}: {_redirected(error)}", billed=False)
    words = f"{name}: {_words(error)}"
    kinds = _kinds(error)
    if _is_too_long(f"{words}\n{error}", status, kinds):
        return ModelOverflow(words)
    if status in _DENIED_STATUS or kinds & _DENIED_KINDS or any(said in words.lower() for said in _NO_MONEY):
        return ModelDenied(words)
    # An error in mid-stream comes with the status of its beginning, or with none.
    is_passing = status is None or status == 200 or status in _PASSING_STATUS or status >= 500
    billed = is_begun or _may_be_billed(error, status)
    if is_passing:
        return ModelUnavailable(words, _retry_after(error), billed=billed)
    return ModelError(words, billed=billed)


def seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """What `Retry-After` asks for, as seconds: it may be a number or a date."""
    milliseconds, asked = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            return max(float(milliseconds) / 1000, 0.0)
        return None if asked is None else max(_seconds(asked), 0.0)
    except ValueError:
        return None


def _seconds(asked: str) -> float:
    if asked.strip().replace(".", "", 1).isdigit():
        return float(asked)
    when = parsedate_to_datetime(asked)
    return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


def headers_of(source: Any) -> Mapping[str, str]:
    """The headers of the response that an error or a stream comes from; none when it has no such thing."""
    return getattr(getattr(source, "response", None), "headers", None) or {}


def _retry_after(error: Exception) -> float | None:
    return seconds_to_wait(headers_of(error))


def _redirected(error: Exception) -> str:
    origin = _ORIGIN.match(headers_of(error).get("location", ""))
    where = origin[0] if origin else "another place of the same server"
    return f"the server redirects to {where}, and nothing is sent there; if that is right, use its address"


def _may_be_billed(error: Exception, status: int | None) -> bool:
    if status in (None, 200) or "Timeout" in type(error).__name__:
        return type(error.__cause__).__name__ not in _NEVER_SENT
    return status in _GATEWAY_TIMEOUTS


def _is_too_long(words: str, status: int | None, kinds: set[str]) -> bool:
    # One request above a limit per minute will not pass in the next minute either.
    alone_too_large = status == 429 and "request too large" in words.lower()
    return status == 413 or "request_too_large" in kinds or alone_too_large or is_overflow(words)


def _words(error: Exception) -> str:
    """What the provider said, else what the SDK says, and the cause that the SDK hides."""
    said = _details(error).get("message") or str(error) or type(error).__name__
    cause = error.__cause__
    because = f" ({type(cause).__name__}: {cause})" if cause is not None and not hasattr(error, "status_code") else ""
    status = getattr(error, "status_code", None)
    shown = f"HTTP {status}: " if status not in (None, 200) else ""
    return f"{shown}{str(said)[:_MOST_WORDS]}{because}"


def _kinds(error: Exception) -> set[str]:
    details = _details(error)
    return {str(details.get(name)) for name in ("type", "code")}


def _details(error: Exception) -> dict[str, Any]:
    """The part of an error's body that says what went wrong; providers nest it differently."""
    body = getattr(error, "body", None)
    while isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}
