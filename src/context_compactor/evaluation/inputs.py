"""A user's files: found, read as conversations and dialogues, and surveyed before the long work."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Struct

from context_compactor.dialects.transcripts.json_lines import JsonFile, unpack
from context_compactor.dialects.transcripts.reader import read_transcripts
from context_compactor.dialects.transcripts.transcript import Transcript
from context_compactor.errors import BadInput, BadTranscript
from context_compactor.evaluation.corpus import RecordedCompaction, RecordedConversation, history_cuts
from context_compactor.evaluation.expected import identifiers
from context_compactor.evaluation.messages import RawMessage, arguments_text, flat_text, text_of
from context_compactor.evaluation.output import ProgressListener
from context_compactor.evaluation.pool import spread

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class ChatItems(Struct, frozen=True):
    """Chat messages, and for each item the index of the message it went into."""

    messages: list[RawMessage]
    places: list[int]

    def place(self, item: int) -> int:
        """Where the message of an item stands; the end for an item after the last."""
        return self.places[item] if item < len(self.places) else len(self.messages)


def as_chat(items: Sequence[RawMessage]) -> ChatItems:
    """What the agent wrote between two results or user messages becomes one message with its calls."""
    chat = ChatItems([], [])
    for item in items:
        _add(chat.messages, item)
        chat.places.append(max(0, len(chat.messages) - 1))
    return chat


def _add(messages: list[RawMessage], item: RawMessage) -> None:
    kind = item.get("type", "message")
    if kind in _OUTPUTS:
        call_id = str(item.get("call_id") or item.get("id") or "")
        messages.append({"role": "tool", "tool_call_id": call_id, "content": text_of(item.get("output"))})
    elif kind in _CALLS:
        _reply(messages).setdefault("tool_calls", []).append(_call(item))
    elif kind == "reasoning":
        _extend(messages, "reasoning_content", text_of(item.get("summary")))
    elif item.get("role") == "assistant":
        _extend(messages, "content", text_of(item.get("content")))
    elif "role" in item:
        messages.append({"role": item["role"], "content": text_of(item.get("content"))})


def _call(item: RawMessage) -> dict[str, Any]:
    name = str(item.get("name") or item.get("type"))
    function = {"name": name, "arguments": arguments_text(item)}
    return {"id": str(item.get("call_id") or item.get("id") or ""), "type": "function", "function": function}


def _extend(messages: list[RawMessage], field: str, text: str) -> None:
    if text:
        reply = _reply(messages)
        reply[field] = "\n".join(filter(None, [reply.get(field), text]))


def _reply(messages: list[RawMessage]) -> RawMessage:
    """The agent's message at the end, a new one if something else stands there."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
LARGEST = 512_000_000
_BEST_GZIP = 1_032  # no gzip file holds more than this many times its size; one that says so is damaged


class Skipped(Struct, frozen=True):
    """A file or folder that was left out, and why."""

    path: str
    reason: str


class GatheredConversation(Struct, frozen=True):
    """A conversation as the harness sees it, and the transcript it came from. `system` stands beside the messages."""

    conversation: RecordedConversation
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
            raise BadInput(
                f"{path}: it is neither a regular file nor a folder, and eval reads it twice. Try: save it to a file."
            )
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


def read_conversations(path: str) -> Iterator[GatheredConversation]:
    """Every conversation of one file. Raises `BadTranscript` where it cannot be read."""
    _refuse_enormous(path)
    for number, transcript in enumerate(read_transcripts(path), 1):
        yield conversation_of(transcript, path, number)


def is_dialogue(talk: GatheredConversation) -> bool:
    """Whether it is a talk between people with questions about it."""
    return "qa" in talk.transcript.extra


def read_dialogues(path: str) -> list[dict[str, Any]]:
    """The records of a file of dialogues, as they are."""
    return [record for _, record in JsonFile(unpack(Path(path).read_bytes(), path), path) if "qa" in record]


def conversation_of(transcript: Transcript, path: str, number: int = 1) -> GatheredConversation:
    """One transcript as a conversation of the harness: chat or messages form, with what really happened to it."""
    chat = as_chat(transcript.messages) if transcript.dialect == "openai-responses" else None
    place = chat.place if chat else int
    id_ = transcript.session_id or (f"{stem(path)}#{number}" if number > 1 else stem(path))
    conversation = RecordedConversation(
        id=id_,
        source=_source(transcript, path),
        project=_project(transcript, path),
        provider="anthropic" if transcript.dialect == "anthropic" else "openai",
        messages=chat.messages if chat else transcript.messages,
        events=tuple(RecordedCompaction(place(past.at), past.summary, past.trigger) for past in transcript.compactions),
        usages={place(index): msgspec.to_builtins(usage) for index, usage in transcript.usages.items()},
        times={place(index): at for index, at in transcript.times.items()},
    )
    return GatheredConversation(conversation, transcript, text_of(transcript.system))


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
        last = str(transcript.extra.get("id", "")).rsplit("/", 1)[-1]
        return last.split("__")[0] if "__" in last else str(transcript.extra["source"])
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
        raise BadTranscript(f"{path}: its {size // 1_000_000:,} MB are more than the {limit} that fit into memory.")


def _unpacked_size(path: str) -> int:
    """The bytes of a file; of a gzip file those it says it holds."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            if packed and size > 18:
                file.seek(-4, os.SEEK_END)
                stated = int.from_bytes(file.read(4), "little")
                return stated if size < stated <= _BEST_GZIP * size else size
    except OSError as error:
        raise BadTranscript(f"{path}: cannot be read ({error.strerror}).") from None
    return size


MOST_CONVERSATIONS = 50
COMMON_PROJECTS = 3


class ConversationLocation(Struct, frozen=True):
    """Where a conversation stands, what it weighs, and at how many places it can be cut (`real` ones apart)."""

    path: str
    number: int
    id: str
    source: str
    project: str
    tokens: int
    cuts: int
    real: int


class InputSurvey(Struct, frozen=True):
    """Everything that was found. `common` are the identifiers that stand in three projects or more."""

    files: int
    places: tuple[ConversationLocation, ...]
    dialogues: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    common: frozenset[str] = frozenset()

    @property
    def usable(self) -> list[ConversationLocation]:
        """The conversations that are long enough to be cut."""
        return [place for place in self.places if place.cuts or place.real]

    @property
    def projects(self) -> int:
        """How many projects the conversations come from."""
        return len({place.project for place in self.places})


class _Read(Struct, frozen=True):
    """What one file holds."""

    places: tuple[ConversationLocation, ...] = ()
    names: tuple[frozenset[str], ...] = ()
    dialogues: bool = False
    reason: str = ""


def survey_files(files: Files, jobs: int, watch: ProgressListener) -> InputSurvey:
    """Read every file once: which conversations there are, and which names are common to many projects."""
    places: list[ConversationLocation] = []
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
    return InputSurvey(len(files.paths), tuple(places), tuple(dialogues), tuple(skipped), _common(by_project))


def sampled(found: InputSurvey, every: int | None) -> tuple[list[ConversationLocation], int]:
    """Each so-many-th usable conversation and the step; without one given, such that about fifty are left."""
    usable = found.usable
    step = every or -(-len(usable) // MOST_CONVERSATIONS) or 1
    return usable[::step], step


def load(places: Sequence[ConversationLocation]) -> Iterator[GatheredConversation]:
    """The conversations at these places, file by file."""
    for path in dict.fromkeys(place.path for place in places):
        numbers = {place.number for place in places if place.path == path}
        with suppress(BadInput):  # reported by the survey; what could be read before it is here too
            yield from (talk for number, talk in enumerate(read_conversations(path)) if number in numbers)


def _read(_: None, path: str) -> _Read:
    places: list[ConversationLocation] = []
    names: list[frozenset[str]] = []
    dialogues, reason = False, ""
    try:
        for number, talk in enumerate(read_conversations(path)):
            if is_dialogue(talk):
                dialogues = True
                continue
            places.append(_place(talk, path, number))
            names.append(frozenset(identifiers(flat_text(talk.conversation.messages))))
    except BadInput as error:
        reason = str(error).removeprefix(path).lstrip(":, ").split(". Try:")[0]
        reason = f"read only in part: {reason}" if places else reason
    return _Read(tuple(places), tuple(names), dialogues, reason)


def _place(talk: GatheredConversation, path: str, number: int) -> ConversationLocation:
    conversation, found = talk.conversation, history_cuts(talk.conversation)
    groups = Counter(cut.group for cut in found)
    tokens = max((cut.tokens for cut in found), default=0)
    return ConversationLocation(
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
