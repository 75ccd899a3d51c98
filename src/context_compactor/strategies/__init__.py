"""Ways to save tokens, one small file each.

A strategy is a frozen dataclass with a `name`, its settings as fields, and one method `propose(view)` that yields
options. It never touches a message: the planner chooses, `apply` writes. Read `clear_thinking.py` first, then
`keep_lines.py`.

A layout decides about whole turns instead: which stay verbatim, which are shortened in place, which are folded.
Layouts form a ladder from gentle to hard (`shorten_in_place.py`, `fold_oldest.py`, `start_fresh.py`); the first one
that fits is used.
"""

from __future__ import annotations

from context_compactor.protocols import Layout, Strategy
from context_compactor.strategies.clear_thinking import ClearThinking
from context_compactor.strategies.digest_by_kind import DigestByKind
from context_compactor.strategies.drop_duplicates import DropDuplicates
from context_compactor.strategies.drop_superseded import DropSuperseded
from context_compactor.strategies.fold_oldest import FoldOldest
from context_compactor.strategies.keep_lines import KeepLines
from context_compactor.strategies.reference_refetchable import ReferenceRefetchable
from context_compactor.strategies.shorten_in_place import ShortenInPlace
from context_compactor.strategies.start_fresh import StartFresh
from context_compactor.strategies.truncate_outputs import TruncateOutputs

DEFAULT_STRATEGIES: tuple[Strategy, ...] = (
    DropDuplicates(),
    DropSuperseded(),
    ClearThinking(),
    TruncateOutputs(),
    DigestByKind(),
    ReferenceRefetchable(),
    KeepLines(),
)

LAYOUT_LADDER: tuple[Layout, ...] = (ShortenInPlace(), FoldOldest(), FoldOldest(tail_factor=0.3), StartFresh())
ONE_MESSAGE: tuple[Layout, ...] = (StartFresh(),)
