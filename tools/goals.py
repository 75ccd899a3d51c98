"""What we want to reach on the development corpus."""

from __future__ import annotations

_NAMES = ("FRR", "BND", "NAS", "CSR", "EDT", "FAIL")

KEPT: dict[str, dict[str, float]] = {
    "25": {**dict(zip(_NAMES, (94, 91, 90, 77, 66, 100), strict=True)), "1Q": 98, "LEGAL": 100},
    "10": {**dict(zip(_NAMES, (83, 78, 75, 55, 42, 100), strict=True)), "LEGAL": 100},
    "5": {**dict(zip(_NAMES, (72, 65, 63, 40, 30, 99), strict=True)), "LEGAL": 100},
    "real": {**dict(zip(_NAMES, (82, 78, 85, 50, 20, 99), strict=True)), "LEGAL": 100},
}
HANDOFF = {"FRR": 78.0, "BND": 58.0}
LOCOMO = 85.0
COST = 0.37
COUNT_ANCHORED, COUNT_BLIND = 0.5, 5.0
