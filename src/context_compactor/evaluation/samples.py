"""Samples with everything they want, worked out once and cached on disk between runs."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from context_compactor.evaluation.corpus import DIALOGUES, HistoryCut, RecordedConversation, history_cuts, load
from context_compactor.evaluation.messages import RawMessage, flat_text
from context_compactor.evaluation.pool import spread
from context_compactor.evaluation.wanted import WantedItems, find_wanted, identifiers

COMMON_PROJECTS = 3
_DEFINES = "corpus messages samples wanted"


class Sample(Struct, frozen=True):
    """One cut of one conversation and what its future wants."""

    conversation: RecordedConversation
    cut: HistoryCut
    wanted: WantedItems

    @property
    def id(self) -> str:
        """The conversation's id and the cut's label."""
        return f"{self.conversation.id}@{self.cut.label}"

    @property
    def history(self) -> list[RawMessage]:
        """What the agent knew at the cut."""
        return self.cut.history(self.conversation)


Prepared = list[tuple[HistoryCut, WantedItems]]


def samples(folder: Path, sources: Sequence[str], step: int = 1, jobs: int = 1) -> list[Sample]:
    """The samples of every `step`-th conversation of some sources, from disk where an earlier run left them."""
    found: list[Sample] = []
    for source in sources:
        loaded = load(folder, source)
        prepared = _prepared(folder, source, loaded, jobs)
        for conversation in loaded[::step]:
            found.extend(Sample(conversation, cut, want) for cut, want in prepared[conversation.id])
    return found


def prepare(conversation: RecordedConversation, common: frozenset[str] = frozenset()) -> Prepared:
    """Every cut of a conversation with what its future wants."""
    return [(cut, find_wanted(conversation, cut, common)) for cut in history_cuts(conversation)]


def _prepared(folder: Path, source: str, loaded: list[RecordedConversation], jobs: int) -> dict[str, Prepared]:
    place = _place(folder, source)
    if not place.exists():
        done = spread(_prepare_one, (loaded, common_identifiers(folder)), range(len(loaded)), jobs)
        _write(place, {conversation.id: found for conversation, found in zip(loaded, done, strict=True)})
    prepared: dict[str, Prepared] = pickle.loads(place.read_bytes())
    return prepared


def _prepare_one(shared: tuple[list[RecordedConversation], frozenset[str]], index: int) -> Prepared:
    conversations, common = shared
    return prepare(conversations[index], common)


def common_identifiers(folder: Path) -> frozenset[str]:
    """Identifiers that stand in conversations of three projects or more."""
    place = _place(folder, "common")
    if not place.exists():
        sources = sorted(path.name.removesuffix(".jsonl.gz") for path in folder.glob("*.jsonl.gz"))
        found = common_to_projects([item for source in sources if source != DIALOGUES for item in load(folder, source)])
        _write(place, found)
    common: frozenset[str] = pickle.loads(place.read_bytes())
    return common


def common_to_projects(
    conversations: Sequence[RecordedConversation], projects: int = COMMON_PROJECTS
) -> frozenset[str]:
    """Identifiers that stand in conversations of so many projects."""
    by_project: dict[str, set[str]] = {}
    for conversation in conversations:
        found = by_project.setdefault(conversation.project, set())
        found |= identifiers(flat_text(conversation.messages))
    counts = Counter(name for names in by_project.values() for name in names)
    return frozenset(name for name, count in counts.items() if count >= projects)


def _place(folder: Path, name: str) -> Path:
    code = hashlib.sha256(str(folder.resolve()).encode())
    for module in _DEFINES.split():
        code.update((Path(__file__).parent / f"{module}.py").read_bytes())
    return Path(tempfile.gettempdir()) / f"compactor-quality-{os.getuid()}" / f"{name}-{code.hexdigest()[:16]}.pickle"


def _write(place: Path, value: object) -> None:
    place.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = place.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(value, protocol=5))
    unfinished.replace(place)
