"""What a tool call says about itself: its command, the files it touches, a label for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import structs

from context_compactor.dialects.messages import ToolCall
from context_compactor.dialects.turns import ToolUse, Turn
from context_compactor.facts.shell import (
    LineRange,
    ShellStep,
    lines_of_steps,
    paths_read,
    paths_written,
    script_paths,
    split_command,
)
from context_compactor.json_values import json_text
from context_compactor.text import clip_line

SHELL_TOOLS = frozenset(
    "bash shell exec execcommand shellcommand localshell executecommand runcommand runshellcommand runterminalcmd "
    "runterminalcommand runinterminal terminal executebash run cmd powershell runbash executeshell runshell".split()
)
# These put questions to the user.
ASKING_TOOLS = frozenset("askuserquestion askuser requestuserinput askfollowupquestion".split())
# Here `command` names an action, not a program.
EDITOR_TOOLS = frozenset("strreplaceeditor strreplacebasededittool texteditor editor".split())


_PATH_KEYS = (
    "file_path path filePath filename file target_file notebook_path absolute_path relative_path file_name "
    "AbsolutePath TargetFile".split()
)
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$|^\*\*\* Move to: (.+)$", re.MULTILINE)


def decode_arguments(arguments: str) -> dict[str, Any]:
    """A call's arguments as a dictionary; empty when they are no JSON object."""
    if arguments.lstrip()[:1] != "{":
        return {}
    try:
        values = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def command_in(tool: str, values: dict[str, Any], arguments: str) -> str | None:
    """The shell command among the arguments; for a shell tool without JSON the arguments themselves."""
    if tool in EDITOR_TOOLS:
        return None
    if not values:
        return arguments if tool in SHELL_TOOLS and arguments.lstrip()[:1] not in ("{", "") else None
    command = values.get("command", values.get("cmd"))
    if isinstance(command, list):
        words = [word for word in command if isinstance(word, str)]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(words) or None
    if command is None and tool in SHELL_TOOLS:
        command = values.get("script") or values.get("input")
    return command if isinstance(command, str) else None


def paths_in(values: dict[str, Any]) -> tuple[str, ...]:
    """The paths among the arguments, under any of the names that tools give them."""
    for key in _PATH_KEYS:
        value = values.get(key)
        if isinstance(value, str) and value:
            return (value,)
    several = values.get("paths") or values.get("files")
    if not isinstance(several, list):
        return ()
    named = (each.get("path") if isinstance(each, dict) else each for each in several)
    return tuple(each for each in named if isinstance(each, str) and each)


def paths_patched(values: dict[str, Any], arguments: str) -> tuple[str, ...]:
    """The files that a patch names."""
    texts = [text for text in (values.get("input"), values.get("patch"), values.get("diff")) if isinstance(text, str)]
    found = _PATCHED_FILE.findall(texts[0] if texts else arguments)
    return tuple(dict.fromkeys((first or second).strip() for first, second in found))


def lines_in(values: dict[str, Any]) -> LineRange | None:
    """The lines that a read asks for; None when it asks for all."""
    view = values.get("view_range") or values.get("line_range")
    if isinstance(view, list) and len(view) == 2:
        first, last = view
    else:
        first = _first_of(values, "offset", "start_line", "startLine", "line_start", "start_line_one_indexed")
        last = _first_of(values, "end_line", "endLine", "line_end", "end_line_one_indexed_inclusive")
        limit = values.get("limit")
        if last is None and isinstance(limit, int):
            last = (first if isinstance(first, int) and first > 0 else 1) + limit - 1
    if not isinstance(first, int) and not isinstance(last, int):
        return None
    start = max(first, 1) if isinstance(first, int) else 1
    return start, last if isinstance(last, int) and last >= start else None


def _first_of(values: dict[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)


def objects_in(arguments: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects in a list among the arguments."""
    values = arguments.get(key)
    return [each for each in values if isinstance(each, dict)] if isinstance(values, list) else []


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
_UNINFORMATIVE = frozenset("timeout yield_time_ms max_output_tokens run_in_background explanation".split())
CHANGE_FOLDER = re.compile(r"cd [^;&|\n]{1,200}(?:&&|;)\s*")
_LABEL_LENGTH = 90
_TARGET_LENGTH = 400
# As Claude Code names the tools of our server, and those of our plugin; Codex does as the first.
_OWN_PREFIXES = ("mcp__compactor__", "mcp__plugin_compactor_")


class ParsedCall(msgspec.Struct, frozen=True):
    """What can be told from a call alone. `tool` is its bare name: no server prefix, no separators, lower case."""

    tool: str
    arguments: dict[str, Any]
    command: str | None = None
    steps: tuple[ShellStep, ...] = ()
    paths: tuple[str, ...] = ()
    reads: bool = False
    writes: bool = False
    lines: LineRange | None = None


def parse_call(call: ToolCall) -> ParsedCall:
    """Everything a call tells about itself."""
    return _parse_arguments(call.name, call.arguments)


def is_own_tool(call: ToolCall | None) -> bool:
    """Whether a call asks our own MCP server, so that what it returns was said before: nothing new comes of it."""
    return call is not None and call.name.startswith(_OWN_PREFIXES)


def file_path_of(call: ToolCall | None) -> str | None:
    """The file a call reads or changes, as the agent wrote it; the first one if there are several."""
    return next(iter(file_paths_of(call)), None)


def file_paths_of(call: ToolCall | None) -> tuple[str, ...]:
    """All files a call reads or changes, as the agent wrote them."""
    return parse_call(call).paths if call else ()


def is_read(call: ToolCall | None) -> bool:
    """Whether the call shows a file's content and changes nothing."""
    return call is not None and parse_call(call).reads


def line_range_of(call: ToolCall | None) -> LineRange | None:
    """First and last line of a partial read; None when the whole file is read.

    The last is None when it goes to the end; (0, None) is a part whose place cannot be told.
    """
    return parse_call(call).lines if call else None


def target_of(call: ToolCall | None) -> str:
    """The path, command, query or URL the call is about, as one line."""
    if call is None:
        return ""
    parsed = parse_call(call)
    return clip_line(_target(parsed) or call.arguments.strip("{} "), _TARGET_LENGTH)


def describe_call(call: ToolCall | None, root: str = "") -> str:
    """A short label for headings: "Read src/a.py", "Bash `rg -n x`". Paths below `root` are shown from there."""
    if call is None:
        return "tool result"
    parsed = parse_call(call)
    room = max(20, _LABEL_LENGTH - len(call.name) - 3)
    if parsed.command is not None and not (parsed.reads and len(parsed.paths) == 1):
        command = parsed.command.replace(root, "") if root else parsed.command
        return f"{clip_line(call.name, 60)} `{short_command(command, room)}`"
    if parsed.paths:
        first, last = parsed.lines or (0, None)
        lines = f" ({first}-{'' if last is None else last})" if first else ""
        target = _tail_of(clip_line(parsed.paths[0].removeprefix(root), _TARGET_LENGTH), room - len(lines)) + lines
    else:
        target = clip_line(target_of(call).replace(root, "") if root else target_of(call), room)
    return f"{clip_line(call.name, 60)} {target}".rstrip()


@lru_cache(maxsize=2048)
def _parse_arguments(name: str, arguments: str) -> ParsedCall:
    tool = _bare_name(name)
    values = decode_arguments(arguments)
    command = command_in(tool, values, arguments)
    if command is not None:
        return _parse_command(tool, values, command)
    reads = tool in READ_TOOLS or (tool in EDITOR_TOOLS and values.get("command") == "view")
    writes = not reads and (tool in WRITE_TOOLS or tool in EDITOR_TOOLS)
    paths = (paths_in(values) or paths_patched(values, arguments)) if reads or writes else ()
    return ParsedCall(tool, values, None, (), paths, reads, writes, lines_in(values) if reads else None)


def _parse_command(tool: str, values: dict[str, Any], command: str) -> ParsedCall:
    steps = split_command(command)
    patched = paths_patched({}, command) if "*** Begin Patch" in command else ()
    written = tuple(dict.fromkeys((*paths_written(steps), *patched, *script_paths(command, steps))))
    read = () if written else paths_read(steps)
    lines = lines_of_steps(steps) if read else None
    return ParsedCall(tool, values, command, steps, written or read, bool(read), bool(written), lines)


@lru_cache(maxsize=512)
def _bare_name(name: str) -> str:
    last = re.split(r"__|[.:/]", name)[-1] or name
    return re.sub(r"[\W_]+", "", last).lower()


def _target(parsed: ParsedCall) -> str:
    if parsed.command is not None:
        return parsed.command
    values = parsed.arguments
    pattern = values.get("pattern")
    if isinstance(pattern, str):
        where = values.get("path") or values.get("glob")
        return f"{pattern} in {where}" if isinstance(where, str) else pattern
    if parsed.paths:
        return ", ".join(parsed.paths)
    named = next((values[key] for key in _TARGET_KEYS if isinstance(values.get(key), str)), "")
    return named or ", ".join(_short_arguments(values))


def _short_arguments(values: dict[str, Any]) -> list[str]:
    given = {key: value for key, value in values.items() if value not in ("", None) and key not in _UNINFORMATIVE}
    simple = [(key, value) for key, value in given.items() if isinstance(value, str | int | float)]
    if not simple:
        return list(given)
    return [str(value) for _, value in simple] if len(simple) == 1 else [f"{key}={value}" for key, value in simple]


def short_command(command: str, room: int) -> str:
    """The command without a leading `cd`, and without the text of a heredoc."""
    plain = CHANGE_FOLDER.sub("", command[:2000].strip(), count=1)
    first, _, rest = plain.partition("\n")
    return clip_line(f"{first}…" if rest and "<<" in first else plain, room)


def _tail_of(path: str, room: int) -> str:
    if len(path) <= room:
        return path
    tail = path[len(path) - room + 1 :]
    folder = tail.find("/")
    return "…" + (tail[folder:] if 0 <= folder < room // 2 else tail)


_BACKGROUND_ID = re.compile(r"(?:running|background)\b[^\n]{0,40}\bID:? (\w+)", re.IGNORECASE)
_BACKGROUND_KEYS = ("session_id", "bash_id", "shell_id", "task_id", "process_id")


def background_id(answer: str) -> str:
    """The id under which a command goes on running, when its answer says that it does."""
    head = answer[:300]
    found = _BACKGROUND_ID.search(head) if "ID" in head or "id" in head else None
    return found[1] if found else ""


def polled_id(call: ToolCall | None) -> str:
    """The id of the running command that a call asks about."""
    values = parse_call(call).arguments if call else {}
    return next((str(values[key]) for key in _BACKGROUND_KEYS if values.get(key)), "")


CallInTurn = tuple[int, ToolUse, ParsedCall]


def calls_in_turns(turns: Iterable[Turn]) -> list[CallInTurn]:
    """Turn number, exchange and reading of each call, in order; results without their call are passed over.

    So is what our own server was asked. A result that only stands in for one that was never recorded is none.
    """
    return [
        (
            turn.number,
            structs.replace(exchange, result=None) if exchange.is_lost else exchange,
            parse_call(exchange.call),
        )
        for turn in turns
        for exchange in turn.exchanges
        if exchange.call is not None and not is_own_tool(exchange.call)
    ]


# What an edit took out stands at the end of its text, each line behind this mark.
REMOVED = "- "


def removed_lines(old: str, new: str) -> Iterator[str]:
    """What an edit took out, marked as gone: the lines of the old text that are not in the new one."""
    kept = set(new.split("\n"))
    return (f"{REMOVED}{line}" for line in old.split("\n") if line not in kept)


def call_body(call: ToolCall) -> str:
    """A call's arguments as lines a person would read: strings unescaped, each argument on its own line."""
    arguments = parse_call(call).arguments
    return "\n".join(_argument_lines(arguments)) if arguments else call.arguments


# Arguments whose text says all: their name would only be in the way of reading and matching it.
_SPEAKING = frozenset(
    "old_string old_str old_text oldText new_string new_str new_text newText "
    "command cmd content prompt patch input query pattern".split()
)
_OLD = ("old_string", "old_str", "old_text", "oldText")
_NEW = ("new_string", "new_str", "new_text", "newText")


def _argument_lines(arguments: dict[str, object]) -> Iterator[str]:
    old, new = (next((key for key in keys if isinstance(arguments.get(key), str)), "") for keys in (_OLD, _NEW))
    if old and new:
        yield from _argument_lines({key: value for key, value in arguments.items() if key != old})
        yield from removed_lines(str(arguments[old]), str(arguments[new]))
        return
    for key, value in arguments.items():
        if isinstance(value, str):
            if key in _SPEAKING or "\n" in value:
                yield value
            else:
                yield f"{key}: {value}"
        elif isinstance(value, dict):
            yield from _argument_lines(value)
        elif isinstance(value, list) and all(isinstance(item, dict) for item in value):
            for item in value:
                yield from _argument_lines(item)
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield f"{key}: {' '.join(value)}"
        else:
            yield f"{key}: {json_text(value)}"
