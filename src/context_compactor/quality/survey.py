"""What there is to evaluate: a first walk over all files, before the long work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from context_compactor.errors import BadInput
from context_compactor.quality.cutting import cuts
from context_compactor.quality.gather import Files, Skipped, Talk, is_dialogue, read_talks
from context_compactor.quality.identifiers import identifiers
from context_compactor.quality.pool import spread
from context_compactor.quality.prepared import COMMON_PROJECTS
from context_compactor.quality.reading import flat_text
from context_compactor.quality.watch import Watch

MOST_CONVERSATIONS = 50


class Place(Struct, frozen=True):
    """Where a conversation stands, what it weighs, and at how many places it can be cut (`real` ones apart)."""

    path: str
    number: int
    id: str
    source: str
    project: str
    tokens: int
    cuts: int
    real: int


class Survey(Struct, frozen=True):
    """Everything that was found. `common` are the identifiers that stand in three projects or more."""

    files: int
    places: tuple[Place, ...]
    dialogues: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    common: frozenset[str] = frozenset()

    @property
    def usable(self) -> list[Place]:
        """The conversations that are long enough to be cut."""
        return [place for place in self.places if place.cuts or place.real]

    @property
    def projects(self) -> int:
        """How many projects the conversations come from."""
        return len({place.project for place in self.places})


class _Read(Struct, frozen=True):
    """What one file holds."""

    places: tuple[Place, ...] = ()
    names: tuple[frozenset[str], ...] = ()
    dialogues: bool = False
    reason: str = ""


def survey(files: Files, jobs: int, watch: Watch) -> Survey:
    """Read every file once: which conversations there are, and which names are common to many projects."""
    places: list[Place] = []
    dialogues: list[str] = []
    skipped = list(files.skipped)
    by_project: dict[str, set[str]] = {}
    watch.start("Reading", len(files.paths))
    for path, read in zip(files.paths, spread(_read, None, files.paths, jobs), strict=True):
        places.extend(read.places)
        dialogues += [path] if read.dialogues else []
        skipped += [Skipped(path, read.reason)] if read.reason else []
        for place, names in zip(read.places, read.names, strict=True):
            by_project.setdefault(place.project, set()).update(names)
        watch.step()
    return Survey(len(files.paths), tuple(places), tuple(dialogues), tuple(skipped), _common(by_project))


def chosen(found: Survey, every: int | None) -> tuple[list[Place], int]:
    """Each so-many-th usable conversation and the step; without one given, such that about fifty are left."""
    usable = found.usable
    step = every or -(-len(usable) // MOST_CONVERSATIONS) or 1
    return usable[::step], step


def load(places: Sequence[Place]) -> Iterator[Talk]:
    """The conversations at these places, file by file."""
    for path in dict.fromkeys(place.path for place in places):
        numbers = {place.number for place in places if place.path == path}
        with suppress(BadInput):  # told in the survey; what could be read before it is here too
            yield from (talk for number, talk in enumerate(read_talks(path)) if number in numbers)


def _read(_: None, path: str) -> _Read:
    places: list[Place] = []
    names: list[frozenset[str]] = []
    dialogues, reason = False, ""
    try:
        for number, talk in enumerate(read_talks(path)):
            if is_dialogue(talk):
                dialogues = True
                continue
            places.append(_place(talk, path, number))
            names.append(frozenset(identifiers(flat_text(talk.conversation.messages))))
    except BadInput as error:
        reason = str(error).removeprefix(path).lstrip(":, ").split(". Try:")[0]
        reason = f"read only in part: {reason}" if places else reason
    return _Read(tuple(places), tuple(names), dialogues, reason)


def _place(talk: Talk, path: str, number: int) -> Place:
    conversation, found = talk.conversation, cuts(talk.conversation)
    groups = Counter(cut.group for cut in found)
    tokens = max((cut.tokens for cut in found), default=0)
    return Place(
        path,
        number,
        conversation.id,
        conversation.source,
        conversation.project,
        tokens,
        groups["main"],
        groups["real"],
    )


def _common(by_project: dict[str, set[str]]) -> frozenset[str]:
    counts = Counter(name for names in by_project.values() for name in names)
    return frozenset(name for name, count in counts.items() if count >= COMMON_PROJECTS)
