"""What a tool call says about itself: its command, the files it touches, a label for people.

A call is read once and the reading is kept, so that every question about it is cheap.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from context_compactor.classify.arguments import (
    EDITOR_TOOLS,
    command_in,
    decode,
    lines_in,
    paths_in,
    paths_patched,
)
from context_compactor.classify.scripts import paths_scripted
from context_compactor.classify.shell import Step, split_steps
from context_compactor.classify.shell_files import Lines, lines_of_steps, paths_read, paths_written
from context_compactor.messages.message import ToolCall

READ_TOOLS = frozenset(
    "read readfile readfiles readtextfile readmultiplefiles readmanyfiles view viewfile open openfile cat fileread "
    "getfilecontents notebookread fsread readnotebook".split()
)
WRITE_TOOLS = frozenset(
    "write writefile writetofile createfile edit multiedit editfile notebookedit strreplace replaceinfile replace "
    "applypatch patch applydiff searchreplace searchandreplace insert inserttext savefile createorupdatefile "
    "deletefile movefile fswrite filewrite fileedit update edittextfile insertcontent".split()
)
_TARGET_KEYS = (
    "file_path path filePath url uri query pattern description command cmd subject skill title question "
    "identifier id task_id agent_id name prompt message".split()
)
_NOT_TELLING = frozenset("timeout yield_time_ms max_output_tokens run_in_background explanation".split())
CHANGES_FOLDER = re.compile(r"cd [^;&|\n]{1,200}(?:&&|;)\s*")
_LABEL_LENGTH = 90
_TARGET_LENGTH = 400
# As Claude Code names the tools of our server, and those of our plugin; Codex does as the first.
_OWN = ("mcp__compactor__", "mcp__plugin_compactor_")


class Reading(msgspec.Struct, frozen=True):
    """What can be told from a call alone. `tool` is its bare name: no server prefix, no separators, lower case."""

    tool: str
    arguments: dict[str, Any]
    command: str | None = None
    steps: tuple[Step, ...] = ()
    paths: tuple[str, ...] = ()
    reads: bool = False
    writes: bool = False
    lines: Lines | None = None


def read_call(call: ToolCall) -> Reading:
    """Everything a call tells about itself."""
    return _read(call.name, call.arguments)


def is_own(call: ToolCall | None) -> bool:
    """Whether a call asks our own MCP server, so that what it returns was said before: nothing new comes of it."""
    return call is not None and call.name.startswith(_OWN)


def command_of(call: ToolCall | None) -> str | None:
    """The shell command a call runs, as typed."""
    return read_call(call).command if call else None


def file_path_of(call: ToolCall | None) -> str | None:
    """The file a call reads or changes, as the agent wrote it; the first one if there are several."""
    return next(iter(file_paths_of(call)), None)


def file_paths_of(call: ToolCall | None) -> tuple[str, ...]:
    """All files a call reads or changes, as the agent wrote them."""
    return read_call(call).paths if call else ()


def is_read(call: ToolCall | None) -> bool:
    """Whether the call shows a file's content and changes nothing."""
    return call is not None and read_call(call).reads


def is_write(call: ToolCall | None) -> bool:
    """Whether the call creates, changes or removes a file."""
    return call is not None and read_call(call).writes


def line_range_of(call: ToolCall | None) -> Lines | None:
    """First and last line of a partial read; None when the whole file is read.

    The last is None when it goes to the end; (0, None) is a part whose place cannot be told.
    """
    return read_call(call).lines if call else None


def target_of(call: ToolCall | None) -> str:
    """The path, command, query or URL the call is about, as one line."""
    if call is None:
        return ""
    reading = read_call(call)
    return _one_line(_target(reading) or call.arguments.strip("{} "), _TARGET_LENGTH)


def describe(call: ToolCall | None, root: str = "") -> str:
    """A short label for headings: "Read src/a.py", "Bash `rg -n x`". Paths below `root` are shown from there."""
    if call is None:
        return "tool result"
    reading = read_call(call)
    room = max(20, _LABEL_LENGTH - len(call.name) - 3)
    if reading.command is not None and not (reading.reads and len(reading.paths) == 1):
        command = reading.command.replace(root, "") if root else reading.command
        return f"{_one_line(call.name, 60)} `{short_command(command, room)}`"
    if reading.paths:
        lines = _label_of_lines(reading.lines)
        target = _tail_of(_one_line(reading.paths[0].removeprefix(root), _TARGET_LENGTH), room - len(lines)) + lines
    else:
        target = _one_line(target_of(call).replace(root, "") if root else target_of(call), room)
    return f"{_one_line(call.name, 60)} {target}".rstrip()


@lru_cache(maxsize=2048)
def _read(name: str, arguments: str) -> Reading:
    tool = _bare_name(name)
    values = decode(arguments)
    command = command_in(tool, values, arguments)
    if command is not None:
        return _readcommand_in(tool, values, command)
    reads = tool in READ_TOOLS or (tool in EDITOR_TOOLS and values.get("command") == "view")
    writes = not reads and (tool in WRITE_TOOLS or tool in EDITOR_TOOLS)
    paths = (paths_in(values) or paths_patched(values, arguments)) if reads or writes else ()
    return Reading(tool, values, None, (), paths, reads, writes, lines_in(values) if reads else None)


def _readcommand_in(tool: str, values: dict[str, Any], command: str) -> Reading:
    steps = split_steps(command)
    patched = paths_patched({}, command) if "*** Begin Patch" in command else ()
    written = tuple(dict.fromkeys((*paths_written(steps), *patched, *paths_scripted(command, steps))))
    read = () if written else paths_read(steps)
    lines = lines_of_steps(steps) if read else None
    return Reading(tool, values, command, steps, written or read, bool(read), bool(written), lines)


@lru_cache(maxsize=512)
def _bare_name(name: str) -> str:
    last = re.split(r"__|[.:/]", name)[-1] or name
    return re.sub(r"[\W_]+", "", last).lower()


def _target(reading: Reading) -> str:
    if reading.command is not None:
        return reading.command
    values = reading.arguments
    pattern = values.get("pattern")
    if isinstance(pattern, str):
        where = values.get("path") or values.get("glob")
        return f"{pattern} in {where}" if isinstance(where, str) else pattern
    if reading.paths:
        return ", ".join(reading.paths)
    named = next((values[key] for key in _TARGET_KEYS if isinstance(values.get(key), str)), "")
    return named or ", ".join(_short_arguments(values))


def _short_arguments(values: dict[str, Any]) -> list[str]:
    told = {key: value for key, value in values.items() if value not in ("", None) and key not in _NOT_TELLING}
    simple = [(key, value) for key, value in told.items() if isinstance(value, str | int | float)]
    if not simple:
        return list(told)
    return [str(value) for _, value in simple] if len(simple) == 1 else [f"{key}={value}" for key, value in simple]


def _label_of_lines(lines: Lines | None) -> str:
    if lines is None or lines[0] == 0:
        return ""
    first, last = lines
    return f" ({first}-{'' if last is None else last})"


def short_command(command: str, room: int) -> str:
    """The command without a leading `cd`, and without the text of a heredoc."""
    plain = CHANGES_FOLDER.sub("", command[:2000].strip(), count=1)
    first, _, rest = plain.partition("\n")
    return _one_line(f"{first}…" if rest and "<<" in first else plain, room)


def _one_line(text: str, limit: int) -> str:
    line = " ".join(text[: limit * 4].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _tail_of(path: str, room: int) -> str:
    if len(path) <= room:
        return path
    tail = path[len(path) - room + 1 :]
    folder = tail.find("/")
    return "…" + (tail[folder:] if 0 <= folder < room // 2 else tail)
