"""The brief: what an agent is told after its window was compacted, within what the agent takes from a hook."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from msgspec import structs

from context_compactor.agents.known import Agent
from context_compactor.facts.learned import load_learned
from context_compactor.facts.owners import owner_folder
from context_compactor.handoff.writer import material_of, resume_brief
from context_compactor.hooks.call import Call
from context_compactor.session import checkpoints
from context_compactor.session.core import Core
from context_compactor.session.handing import orchestrator
from context_compactor.session.memory import all_facts, scene_of
from context_compactor.session.project import local_owner, project_of

# Of what an agent takes, so much is left free.
_SPARE = 200
_SIZES = (2_600, 2_200, 1_800, 1_400, 1_000, 700, 400)
_LEARNED_TOKENS = 600
_MARK = "compactor-brief"
# Newer models of Codex reach tools only from a script, and are not told which there are.
_WAYS = {"claude-code": "", "codex": ' (in a script: `await tools.mcp__compactor__recall({id: "tool_017"})`)'}


def marker(core: Core, why: str) -> str:
    """A word by which a brief is found again in the agent's log."""
    text = f"{core.id}\n{core.now()}\n{why}"
    return f"{_MARK}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}"


def brief(core: Core, agent: Agent, mark: str) -> str:
    """What must not be forgotten, the most important first, and how everything else comes back."""
    facts = all_facts(core)
    checkpoint = structs.replace(checkpoints.make(core), archive=())  # all of it is archived, so a list says nothing
    tail = _tail(core, agent, mark)
    room = agent.most_said - _SPARE - _size(tail) - 2
    material = material_of(scene_of(core), facts)
    text = ""
    for tokens in _SIZES:
        text = resume_brief(checkpoint, facts, tokens, material)
        if _size(text) <= room:
            break
    return f"{_cut(text, room)}\n\n{tail}"


def _tail(core: Core, agent: Agent, mark: str) -> str:
    running = [agent.line for agent in orchestrator(core).subagents.running]
    told = "".join(f"\n- {line}" for line in running[:5])
    children = (
        f"Sub-agents that were running when the window was compacted, not to be started again:{told}\n" if told else ""
    )
    return (
        f"{children}This record is kept by Context Compactor beside your own summary; where they differ, it has the "
        'exact words. Nothing is lost: the tools recall("tool_017"), search_archive("words") and facts() of the MCP '
        f"server `compactor`{_WAYS[agent.name]} return originals, or run `compactor recall ID` and "
        f'`compactor recall --search "words"` with --session {core.id!r}. [{mark}]'
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _cut(text: str, most: int) -> str:
    """A brief in at most so many bytes: lines go from the longest list, the oldest of it first."""
    lines = text.split("\n")
    left = 0
    while _size(text) > most and len(lines) > 3:
        first, last = _longest_list(lines)
        if last - first < 2:
            break
        del lines[first]
        left += 1
        text = "\n".join((*lines, f"({left:,} older lines did not fit here: facts() has them.)"))
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


def _longest_list(lines: Sequence[str]) -> tuple[int, int]:
    """Where the list with the most characters begins and ends."""
    spans: list[tuple[int, int]] = []
    first = 0
    for at, line in enumerate((*lines, "")):
        if not line.startswith("- "):
            spans.append((first, at))
            first = at + 1
    return max(spans, key=lambda span: sum(map(len, lines[slice(*span)])))


def learned(call: Call) -> str:
    """What other sessions of the same user have taught in this project."""
    project, owner = project_of(call.settings.store), local_owner(call.settings.store, Path(call.root))
    if project is None or not owner or not call.settings.promote_to_memory:
        return ""
    return load_learned(owner_folder(project.learned, owner), _LEARNED_TOKENS)
