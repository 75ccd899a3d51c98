"""What the retention measures may not fall below on the development corpus, and what other measures shall reach."""

from __future__ import annotations

KEPT: dict[str, dict[str, float]] = {
    "25": {"BND": 82, "NAS": 80, "CSR": 64, "EDT": 50, "1Q": 95, "LEGAL": 100, "RESTORE": 100},
    "10": {"1Q": 93, "LEGAL": 100, "RESTORE": 100},
    "5": {"1Q": 93, "LEGAL": 100, "RESTORE": 100},
    "real": {"1Q": 93, "LEGAL": 100, "RESTORE": 100},
}
LOCOMO = 85.0
COST = 0.37
COUNT_ANCHORED, COUNT_BLIND = 0.5, 5.0
