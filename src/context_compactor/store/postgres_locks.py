"""The one lock of a store: shared by all who write, held alone by whoever must not be disturbed.

Sessions are locked by their rows, so writers of different sessions do not wait for each other. What concerns all of
them, deleting contents that nobody needs and changing the tables, waits until no transaction is under way.
"""

from __future__ import annotations

_OURS = int.from_bytes(b"CtxC")
LOCK_SHARED = f"SELECT pg_advisory_xact_lock_shared({_OURS}, 0), pg_current_xact_id()::text".encode()
LOCK_ALONE = f"SELECT pg_advisory_xact_lock({_OURS}, 0), pg_current_xact_id()::text".encode()
