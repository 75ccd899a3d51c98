"""Signatures of deliveries, as the Standard Webhooks specification has them, so that its libraries can verify them."""

from __future__ import annotations

import base64
import hmac
import secrets

PREFIX = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> str:
    """A secret for a new webhook."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signed_headers(secret: str, event_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows who has sent a body, which event it is, and when it was sent."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = hmac.digest(key, b"%s.%d.%s" % (event_id.encode(), seconds, body), "sha256")
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
