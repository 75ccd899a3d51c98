"""The log of the hooks, `.compactor/logs/hooks.jsonl`: what each hook did, or why it could not."""

from __future__ import annotations

import json
import os
import time

from context_compactor.agents.paths import prepare_home
from context_compactor.agents.transcript_tail import json_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOG_FILE = os.path.join("logs", "hooks.jsonl")
GOES_ON_WITH_OURS = "it goes on with what we wrote"
"""Why there is no brief after a compaction that was ours."""
_MOST_BYTES = 1_000_000
_LONGEST = 2_000
NO_ANSWER = "no answer"
"""What is logged of a compaction that our plugin should have answered, and the agent made by itself."""
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def log_hook(root: str, event: str, what: str, **more: object) -> None:
    """Log one thing that happened. What cannot be written is lost."""
    append_log_line(root, LOG_FILE, {"event": event, "what": what, **more})


def append_log_line(root: str, file: str, line: dict[str, object], longest: int = _LONGEST) -> str:
    """Append a line with the time before it to a file of `.compactor`; the path of that, or nothing if it failed."""
    short = {name: value[:longest] if isinstance(value, str) else value for name, value in line.items()}
    text = json.dumps({"time": utc_now_text()} | short, default=str)
    try:
        path = os.path.join(prepare_home(root), file)
        _rotate(path)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_FOLLOW, 0o600)
        try:
            os.write(descriptor, f"{text}\n".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return path


def read_hook_log(root: str) -> Iterator[dict[str, object]]:
    """The lines of a project's hook log, in order; lines that cannot be read are left out."""
    path = os.path.join(root, ".compactor", LOG_FILE)
    for name in (f"{path}.1", path):
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            continue
        yield from filter(None, map(json_object, lines))


def utc_now_text() -> str:
    """The time of day in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _rotate(path: str) -> None:
    """Keep the last two files of a megabyte."""
    try:
        if os.stat(path).st_size > _MOST_BYTES:
            os.replace(path, f"{path}.1")
    except FileNotFoundError:
        return
