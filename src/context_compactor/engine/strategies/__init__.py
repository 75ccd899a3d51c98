"""Ways to save tokens: each a frozen dataclass with a `name`, its settings as fields, and one method
`propose(view)`."""

from __future__ import annotations

from context_compactor.engine.layouts import FoldOldest, ShortenInPlace, StartFresh
from context_compactor.engine.strategies.digests import DigestByKind
from context_compactor.engine.strategies.lines import KeepLines, TruncateOutputs
from context_compactor.engine.strategies.references import (
    ClearThinking,
    DropDuplicates,
    DropSuperseded,
    ReferenceRefetchable,
)
from context_compactor.protocols import Layout, Strategy

DEFAULT_STRATEGIES: tuple[Strategy, ...] = (
    DropDuplicates(),
    DropSuperseded(),
    ClearThinking(),
    TruncateOutputs(),
    DigestByKind(),
    ReferenceRefetchable(),
    KeepLines(),
)

DEFAULT_LAYOUTS: tuple[Layout, ...] = (ShortenInPlace(), FoldOldest(), FoldOldest(tail_factor=0.3), StartFresh())
ONE_MESSAGE_LAYOUTS: tuple[Layout, ...] = (StartFresh(),)
