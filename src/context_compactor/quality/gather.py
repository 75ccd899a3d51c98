"""Transcripts wherever a user has them: files and folders become conversations and dialogues.

Reading a log into messages is the one thing that the harness leaves to the product.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.errors import BadInput, BadTranscript
from context_compactor.messages.logs.decode import unpack
from context_compactor.messages.logs.lines import Entries
from context_compactor.messages.transcripts import Transcript, read_transcripts
from context_compactor.quality import corpus
from context_compactor.quality.chat import as_chat
from context_compactor.quality.corpus import Conversation, Event
from context_compactor.quality.reading import text_of

ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
LARGEST = 512_000_000
_BEST_GZIP = 1_032  # no gzip file holds more than this many times its size; one that says so is damaged


class Skipped(Struct, frozen=True):
    """A file or folder that was left out, and why."""

    path: str
    reason: str


class Talk(Struct, frozen=True):
    """A conversation as the harness sees it, and the transcript it came from. `system` stands beside the messages."""

    conversation: Conversation
    transcript: Transcript
    system: str = ""


class Files(Struct, frozen=True):
    """The files to read, and folders that could not be opened."""

    paths: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


def find_files(paths: Sequence[str]) -> Files:
    """Every file that is named, and every JSON file in the folders that are, each once. Links to folders are not
    followed."""
    found: dict[str, str] = {}
    skipped: list[Skipped] = []
    for path in paths:
        if not os.path.lexists(path):
            raise BadInput(f"{path}: there is no such file or folder. Try: check the path.")
        if not Path(path).is_dir() and not Path(path).is_file():
            raise BadInput(f"{path}: this is neither a file nor a folder, and is read twice. Try: a file.")
        inside = _walk(path, skipped) if Path(path).is_dir() else [path]
        found.update((os.path.realpath(file), file) for file in inside if os.path.realpath(file) not in found)
    return Files(tuple(found.values()), tuple(skipped))


def _walk(folder: str, skipped: list[Skipped]) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        skipped.append(Skipped(str(error.filename), f"the folder cannot be opened ({error.strerror})"))

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        files = (str(Path(place, name)) for name in sorted(names) if name.lower().endswith(ENDINGS))
        yield from (file for file in files if Path(file).is_file())


def read_talks(path: str) -> Iterator[Talk]:
    """Every conversation of one file. Raises `BadTranscript` where it cannot be read."""
    _refuse_enormous(path)
    for number, transcript in enumerate(read_transcripts(path), 1):
        yield talk_of(transcript, path, number)


def is_dialogue(talk: Talk) -> bool:
    """Whether it is a talk between people with questions about it."""
    return "qa" in talk.transcript.extra


def read_dialogues(path: str) -> list[dict[str, Any]]:
    """The records of a file of dialogues, as they are."""
    return [record for _, record in Entries(unpack(Path(path).read_bytes(), path), path) if "qa" in record]


def talk_of(transcript: Transcript, path: str, number: int = 1) -> Talk:
    """One transcript as a conversation of the harness: chat or messages form, with what really happened to it."""
    chat = as_chat(transcript.messages) if transcript.dialect == "openai-responses" else None
    place = chat.place if chat else int
    id_ = transcript.session_id or (f"{stem(path)}#{number}" if number > 1 else stem(path))
    conversation = Conversation(
        id=id_,
        source=_source(transcript, path),
        project=_project(transcript, path),
        provider="anthropic" if transcript.dialect == "anthropic" else "openai",
        messages=chat.messages if chat else transcript.messages,
        events=tuple(Event(place(past.at), past.summary, past.trigger) for past in transcript.compactions),
        usages={place(index): msgspec.to_builtins(usage) for index, usage in transcript.usages.items()},
    )
    return Talk(conversation, transcript, text_of(transcript.system))


def stem(path: str) -> str:
    """A file's name without its endings."""
    name = PurePath(path).name
    ending = next((ending for ending in sorted(ENDINGS, key=len, reverse=True) if name.lower().endswith(ending)), "")
    return name[: len(name) - len(ending)] or name


def _is_recorded(transcript: Transcript) -> bool:
    return "source" in transcript.extra


def _source(transcript: Transcript, path: str) -> str:
    """A recorded conversation belongs to its file; a log to the agent that wrote it and the project it is from."""
    if _is_recorded(transcript):
        return stem(path)
    return f"{transcript.source}: {_project(transcript, path)}"


def _project(transcript: Transcript, path: str) -> str:
    if _is_recorded(transcript):
        record = {"id": "", "messages": [], **transcript.extra}
        return corpus.conversation(record, "").project
    return project_of(transcript.cwd) or Path(path).resolve().parent.name


def project_of(folder: str) -> str:
    """The name of the project a session worked in; all work trees of a repository are one project."""
    parts = [part for part in re.split(r"[/\\]", folder) if part]
    trees = [index for index, part in enumerate(parts) if "worktree" in part.lower()]
    outside = [part for part in parts[: trees[0]] if not part.startswith(".")] if trees else parts
    return (outside or parts or [""])[-1]


def _refuse_enormous(path: str) -> None:
    size = _unpacked_size(path)
    if size > LARGEST:
        limit = f"{LARGEST // 1_000_000:,} MB"
        raise BadTranscript(f"{path}: with {size // 1_000_000:,} MB it is over the {limit} that fit into memory here.")


def _unpacked_size(path: str) -> int:
    """The bytes of a file; of a gzip file those it says it holds."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            if packed and size > 18:
                file.seek(-4, os.SEEK_END)
                told = int.from_bytes(file.read(4), "little")
                return told if size < told <= _BEST_GZIP * size else size
    except OSError as error:
        raise BadTranscript(f"{path}: cannot be read ({error.strerror}).") from None
    return size
