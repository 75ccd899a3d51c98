"""Where an agent works and what its sessions are called here; only the standard library, since hooks start with it."""

from __future__ import annotations

import os
from zlib import crc32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HOME = ".compactor"
# The tools by which Claude Code calls a sub-agent.
AGENT_TOOLS = ("Agent", "Task")
MOD_FOLDER = "skills/compactor"
"""Below a folder of Claude Code's settings: a plugin that lies there is loaded."""
_PROJECT_MARKS = (HOME, ".git")
# What is written below it.
_OWN_FILES = ("logs", "locks", "learned", "agents.db", "compactor.db", "progress-checkpoint.md", ".gitignore")


def project_root(folder: str, env: Mapping[str, str]) -> str:
    """The folder of the project an agent works in: what the agent says, else the nearest one that looks like one.

    A folder above that belongs to another user does not count, and neither does the user's home.
    """
    named = env.get("CLAUDE_PROJECT_DIR", "")
    if named and os.path.isdir(named):
        return os.path.abspath(named)
    here = start = os.path.abspath(folder) if folder and os.path.isdir(folder) else os.getcwd()
    home = env.get("HOME", "")
    while True:
        if any(_is_ours(os.path.join(here, mark)) for mark in _PROJECT_MARKS):
            return here
        above = os.path.dirname(here)
        if above in (here, home):
            return start
        here = above


def _is_ours(path: str) -> bool:
    try:
        return os.lstat(path).st_uid == os.getuid()
    except OSError:
        return False


def has_mod(root: str, env: Mapping[str, str]) -> bool:
    """Whether an install has put the plugin that compacts into Claude Code, for its user or in a project."""
    user = env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME", ""), ".claude")
    folders = (user, os.path.join(root, ".claude"))
    return any(os.path.isfile(os.path.join(folder, MOD_FOLDER, "hooks", "register.js")) for folder in folders)


def session_key(session_id: str, agent_id: str = "") -> str:
    """What a session of an agent is called here; a sub-agent's is kept apart from that of whoever called it."""
    return f"{session_id}/{agent_id}" if agent_id else session_id


def subagent_log(log: str, agent_id: str) -> str:
    """Where Claude Code writes down what a sub-agent does, beside the log of the session it was called in."""
    folder, _ = os.path.splitext(log)
    return os.path.join(folder, "subagents", f"agent-{agent_id}.jsonl") if log else ""


def prepare_home(root: str) -> str:
    """The folder `.compactor` of a project, made for its owner alone and kept out of commits.

    Whoever made the project may have put something there. What leads elsewhere or is somebody else's is refused.
    """
    # Hooks that only count do without these.
    from pathlib import Path

    from context_compactor.errors import CompactorError
    from context_compactor.files import make_private_folder

    home = os.path.join(root, HOME)
    for name in ("", *_OWN_FILES):
        if os.path.islink(os.path.join(home, name).rstrip("/")):
            raise PermissionError(f"{os.path.join(home, name)} is a link, and links are not followed. Try: remove it.")
    if os.path.exists(home) and not _is_ours(home):
        raise PermissionError(f"{home} belongs to another user. Try: remove it, or work elsewhere.")
    try:
        for folder in (home, os.path.join(home, "logs")):
            make_private_folder(Path(folder))
    except CompactorError as error:
        raise OSError(str(error)) from error
    return home


def settings_fingerprint(root: str, env: Mapping[str, str]) -> str:
    """Changes when settings may have changed: the file's time and size, and the environment; never empty."""
    variables = "\n".join(f"{name}={env[name]}" for name in sorted(env) if name.startswith("COMPACTOR_"))
    try:
        stat = os.stat(os.path.join(root, HOME, "config.toml"))
        file = f"{stat.st_mtime_ns}:{stat.st_size}"
    except OSError:
        file = "no file"
    return f"{file}:{crc32(variables.encode('utf-8', 'surrogateescape')):08x}"  # values may be secret
