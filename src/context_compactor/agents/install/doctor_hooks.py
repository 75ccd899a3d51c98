"""Doctor checks: programs, registered hooks, whether the agent trusts them, and who else touches the context."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from context_compactor import __version__
from context_compactor.agents.coding_agents import CLAUDE_CODE, CodingAgent, HookEvent
from context_compactor.agents.install.commands import (
    BY_NAME,
    NAME,
    Command,
    hook_command,
    is_temporary,
    launcher_command,
)
from context_compactor.agents.install.doctor_findings import (
    PLUGIN,
    DoctorContext,
    Finding,
    RegisteredHook,
    SettingsSource,
    hooks_of,
    look,
    ok,
    our_hooks_of,
    sources,
    table_at,
    wrong,
)
from context_compactor.agents.install.plan import InstallRecords, plan_install
from context_compactor.agents.install.targets import read_json_or_empty, read_toml_or_empty, targets
from context_compactor.agents.install.text_edits import value_at
from context_compactor.errors import CompactorError
from context_compactor.text import one_line

_SECONDS = 10.0
_LONGEST = 80


def programs(ctx: DoctorContext) -> Iterator[Finding]:
    """Versions of everything that has to work together."""
    own = shlex.join(ctx.command) or "no script"
    yield ok(f"compactor {__version__} on Python {platform.python_version()} ({own})")
    for agent in ctx.agents:
        ours = our_hooks_of(ctx, agent)
        if ours or ctx.is_named:
            yield _agent_program(ctx, agent)
            yield from _bundled_programs(ctx) if agent is CLAUDE_CODE else ()
        by_command = {(hook_command(hook.entry) or BY_NAME, hook.source.scope): hook for hook in ours}
        for (command, _), hook in by_command.items():
            yield _called_program(ctx, agent, command, hook)


def find_command(ctx: DoctorContext, command: Command) -> Command | None:
    """What runs for a command that settings name; None where it cannot be run. One without a path is looked for on the
    PATH, then where an install has written it down."""
    path = ctx.env.get("PATH")
    if command == BY_NAME and shutil.which(NAME, path=path) is None:
        command = launcher_command(ctx.env) or command
    found = shutil.which(command[0], path=path)
    return (found, *command[1:]) if found else None


def may_run(ctx: DoctorContext, command: Command, scope: str) -> bool:
    """Whether to run a command that settings name. Those of a project may come from anybody."""
    found = find_command(ctx, command)
    known = [ctx.command, find_command(ctx, BY_NAME)]
    return found is not None and (scope in ("user", "local") or any(each and is_same(found, each) for each in known))


def is_same(one: Command, other: Command) -> bool:
    """Whether two commands run the same installation. A script may have several names; the Python of an environment is
    a link to one that many have in common, so that is taken by its name."""
    resolved = os.path.realpath if len(one) == 1 else os.path.abspath
    return bool(one and other) and resolved(one[0]) == resolved(other[0]) and one[1:] == other[1:]


def install_line(ctx: DoctorContext, agent: CodingAgent, scope: str) -> str:
    """What to type so that this command is registered: its name, if that is what a shell finds by it."""
    named = shutil.which(NAME, path=ctx.env.get("PATH"))
    is_found = not ctx.command or (named is not None and is_same((named,), ctx.command))
    typed = NAME if is_found else shlex.join(ctx.command)
    return f"{typed} install {agent.name}{' --project' if scope == 'project' else ''}"


def version_of(command: Command, env: Mapping[str, str]) -> str:
    """What a program says for `--version`, on one line; nothing when it says nothing in time."""
    try:
        ran = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=dict(env),
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = ran.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:_LONGEST] if lines and ran.returncode == 0 else ""


def _agent_program(ctx: DoctorContext, agent: CodingAgent) -> Finding:
    name = agent.program
    found = shutil.which(name, path=ctx.env.get("PATH"))
    if found is None:
        return look(f"`{name}` is not found on the PATH", f"Install {agent.title}, or add its folder to the PATH")
    version = version_of((found,), ctx.env)
    if not version:
        return look(f"{found} does not print its version", f"Run `{name} --version` and see what it says")
    return ok(f"{agent.title}: {version} ({found})")


_SDK = "claude_agent_sdk"
_VENV_PACKAGES = ("lib/python*/site-packages", "Lib/site-packages")
_CLI_VERSION = re.compile(r"""__cli_version__\s*=\s*["']([\w.+-]{1,40})["']""")


def _bundled_programs(ctx: DoctorContext) -> Iterator[Finding]:
    """The Claude Code that the Claude Agent SDK for Python brings along, which may be another one than on the PATH."""
    spec = importlib.util.find_spec(_SDK)
    own = Path(spec.origin).parent if spec and spec.origin else None
    found = {own.resolve(): own} if own else {}
    for folder in filter(None, (ctx.env.get("VIRTUAL_ENV", ""), *(str(ctx.root / name) for name in (".venv", "venv")))):
        for package in (each for way in _VENV_PACKAGES for each in sorted(Path(folder).glob(f"{way}/{_SDK}"))):
            found.setdefault(package.resolve(), package)
    for package in found.values():
        program = next(
            (path for name in ("claude", "claude.exe") if (path := package / "_bundled" / name).is_file()), None
        )
        if program is not None:
            # What a project brings along may come from anybody, and is only read.
            version = _noted_version(package) or (version_of((str(program),), ctx.env) if package == own else "")
            yield ok(f"Claude Agent SDK brings its own Claude Code: {version or 'version unknown'} ({program})")


def _noted_version(package: Path) -> str:
    try:
        found = _CLI_VERSION.search((package / "_cli_version.py").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def _called_program(ctx: DoctorContext, agent: CodingAgent, command: Command, hook: RegisteredHook) -> Finding:
    where = f"{agent.title} calls {shlex.join(command)} ({hook.source.scope})"
    again = install_line(ctx, agent, hook.source.scope)
    found = find_command(ctx, command)
    if found is None:
        return wrong(f"{where}, {why_not(command)}", again)
    if is_same(found, ctx.command):
        if is_temporary(found) and command != BY_NAME:
            return look(f"{where}, which is in a temporary folder", f"Install the package permanently, then {again}")
        return ok(f"{where}, which is this program")
    if not may_run(ctx, command, hook.source.scope):
        return look(f"{where}, which is another program than this one", f"Check where it comes from, or {again}")
    return _other_program(ctx, found, where, again, is_named=command == BY_NAME)


def why_not(command: Command) -> str:
    """Why a command does not run, after its name."""
    if command == BY_NAME:
        return "which is not on the PATH, and no install has recorded where it is"
    return "which cannot be run" if Path(command[0]).exists() else "which is not there"


def _other_program(ctx: DoctorContext, found: Command, where: str, again: str, *, is_named: bool) -> Finding:
    version = version_of(found, ctx.env)
    if not version:
        return wrong(f"{where}, which does not run", again)
    if version != f"{NAME} {__version__}":
        return look(f"{where}, which is {version}; this is {__version__}", f"Update one of them, then {again}")
    if is_named:
        return ok(f"{where}, which is {found[0]}, of the same version as this one")
    return look(f"{where}; this is {shlex.join(ctx.command)}, of the same version", f"{again}, to use this one")


_REVIEW = "Start `codex` in a terminal and choose “Trust all and continue”, or type /hooks there, then t"
# Codex does not look at the matcher of these, and gives this one no more seconds.
_UNMATCHED = frozenset({"UserPromptSubmit", "Stop"})
_MOST_SECONDS = {"SessionEnd": 3}
_DEFAULT_SECONDS = 600


def trust(ctx: DoctorContext, agent: CodingAgent) -> Iterable[Finding]:
    """Whether the user has agreed to what an agent would run."""
    ours = our_hooks_of(ctx, agent)
    if not ours or agent.extension:
        return ()
    return _codex_trust(ctx, agent, ours) if agent.needs_trust else _claude_code_trust(ctx, agent)


def _claude_code_trust(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """Claude Code asks once for each folder, and runs nothing before it is answered."""
    state = targets(agent, ctx.user, BY_NAME)[1].path
    if value_at(read_json_or_empty(state), ("projects", str(ctx.root), "hasTrustDialogAccepted")) is False:
        yield look(
            f"{agent.title} does not trust {ctx.root} yet, and runs no hooks there until it does",
            "Start `claude` there and answer its question",
        )


def _codex_trust(ctx: DoctorContext, agent: CodingAgent, ours: Sequence[RegisteredHook]) -> Iterator[Finding]:
    config = read_toml_or_empty(ctx.user.codex_folder / "config.toml")
    yield from _project(ctx, agent, config, ours)
    states = table_at(config, "hooks", "state")
    known = {hook.event: hook for hook in agent.hooks}
    new, changed, off = [], [], []
    for each in ours:
        if each.event not in known:
            continue
        state = _state(states, each, known[each.event])
        if state.get("enabled") is False:
            off.append(each.event)
        elif "trusted_hash" not in state:
            new.append(each.event)
        elif state["trusted_hash"] != trusted_hash(each, known[each.event]):
            changed.append(each.event)
    skips = f"{agent.title} skips them silently"
    if new:
        which = f"any of our {len(new)} hooks" if len(new) == len(ours) else f"our hooks for {', '.join(new)}"
        yield wrong(f"nobody has reviewed {which}: {skips}", _REVIEW)
    if changed:
        yield wrong(f"our hooks for {', '.join(changed)} have changed since they were reviewed: {skips}", _REVIEW)
    if off:
        yield wrong(f"our hooks for {', '.join(off)} are switched off in {agent.title}", "Type /hooks in codex")
    if not (new or changed or off):
        yield ok(f"{agent.title}: all {len(ours)} hooks are reviewed")


def trusted_hash(hook: RegisteredHook, known: HookEvent) -> str:
    """What Codex writes down when a hook is reviewed: a hash of everything in it that counts."""
    entry, most = hook.entry, _MOST_SECONDS.get(hook.event)
    hashed: dict[str, Any] = {
        "async": entry.get("async") is True,
        "command": hook.command,
        "timeout": min(_seconds(entry.get("timeout")), most or _seconds(entry.get("timeout"))),
        "type": "command",
    }
    if isinstance(entry.get("statusMessage"), str):
        hashed["statusMessage"] = entry["statusMessage"]
    group: dict[str, Any] = {"event_name": _snake(known), "hooks": [hashed]}
    if hook.matcher and hook.event not in _UNMATCHED:
        group["matcher"] = hook.matcher
    text = json.dumps(group, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()}"


def _project(
    ctx: DoctorContext, agent: CodingAgent, config: dict[str, Any], ours: Sequence[RegisteredHook]
) -> Iterator[Finding]:
    if not any(hook.source.scope == "project" for hook in ours):
        return
    level = table_at(config, "projects", str(ctx.root)).get("trust_level")
    if level == "trusted":
        return
    what = f"so {agent.title} does not read {ctx.root / '.codex'}"
    remedy = "Start `codex` there and trust the folder"
    if level == "untrusted":
        yield wrong(f"{ctx.root} is marked as untrusted, {what}", remedy)
    else:
        yield look(f"{ctx.root} is not trusted yet, {what}", remedy)


def _state(states: dict[str, Any], hook: RegisteredHook, known: HookEvent) -> dict[str, Any]:
    path = hook.source.path
    for name in (str(path), os.path.realpath(path)):
        found = states.get(f"{name}:{_snake(known)}:{hook.number}:{hook.index}")
        if isinstance(found, dict):
            return found
    return {}


def _seconds(value: object) -> int:
    text = str(value)
    return int(text) if text.isdigit() else _DEFAULT_SECONDS


def _snake(known: HookEvent) -> str:
    return known.word.replace("-", "_")


# What an agent compares a matcher with: of tools, some of each sort.
_TOOLS = ("Bash", "apply_patch", "mcp__compactor__recall")
_VALUES = {
    "SessionStart": ("compact", "startup", "resume", "clear"),
    "PreCompact": ("auto", "manual"),
    "PostCompact": ("auto", "manual"),
    "PostToolUse": _TOOLS,
    "PostToolUseFailure": _TOOLS,
}


def hooks(ctx: DoctorContext, agent: CodingAgent) -> list[Finding]:
    """All that can be said of an agent's hooks without having seen one run."""
    found = sources(ctx, agent)
    ours = [hook for hook in hooks_of(found) if hook.is_ours]
    broken = [
        wrong(f"{agent.title} cannot use {source.path}: {what}", remedy[:1].upper() + remedy[1:])
        for source in found
        if source.problem
        for what, _, remedy in (source.problem.partition(" Try: "),)
    ]
    if not ours:
        return [*broken, *_nothing(ctx, agent)]
    problems = [*broken, *_off(agent, found), *_missing(ctx, agent, ours), *_twice(ctx, agent, ours)]
    if not problems:
        problems = list(_outdated(ctx, agent, ours))
    return [_registered(agent, ours), *problems]


def _nothing(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    install = install_line(ctx, agent, "user")
    if ctx.is_named:
        yield wrong(f"nothing is registered with {agent.title}", install)
    elif shutil.which(agent.program, path=ctx.env.get("PATH")):
        yield ok(f"{agent.title} is there, and nothing is registered with it", install)


def _registered(agent: CodingAgent, ours: Sequence[RegisteredHook]) -> Finding:
    files = {hook.source.path: hook.source for hook in ours}
    counts = (
        f"{len({hook.event for hook in ours if hook.source is source})} of {len(agent.hooks)} hooks in {path} "
        f"({source.scope})"
        for path, source in files.items()
    )
    return ok(f"{agent.title}: {'; '.join(counts)}")


def _off(agent: CodingAgent, found: Sequence[SettingsSource]) -> Iterator[Finding]:
    for source in found:
        features = source.values.get("features")
        if agent is CLAUDE_CODE and source.values.get("disableAllHooks") is True:
            name = "disableAllHooks"
        elif agent is not CLAUDE_CODE and isinstance(features, dict) and features.get("hooks") is False:
            name = "features.hooks"
        else:
            continue
        yield wrong(f"all hooks of {agent.title} are switched off: {name} in {source.path}", "Remove that setting")


def _missing(ctx: DoctorContext, agent: CodingAgent, ours: Sequence[RegisteredHook]) -> Iterator[Finding]:
    again = install_line(ctx, agent, ours[0].source.scope)
    gone = [hook.event for hook in agent.hooks if not any(each.event == hook.event for each in ours)]
    if gone:
        yield wrong(f"{agent.title} does not call compactor for {', '.join(gone)}", again)
    for hook in agent.hooks:
        mine = [each for each in ours if each.event == hook.event]
        left = [value for value in _VALUES.get(hook.event, ()) if not any(each.matches(value) for each in mine)]
        if mine and left:
            matcher = " and ".join(repr(each.matcher) for each in mine)
            values = "some tools" if _VALUES[hook.event] is _TOOLS else ", ".join(left)
            what = f"the matcher {matcher} of {hook.event} leaves out {values}"
            yield wrong(f"{agent.title}: {what}", again)


def _twice(ctx: DoctorContext, agent: CodingAgent, ours: Sequence[RegisteredHook]) -> Iterator[Finding]:
    """Hooks that run more than once for one event. Each would count, and give the model its text again."""
    double: dict[str, list[RegisteredHook]] = {}
    for hook in agent.hooks:
        for value in _VALUES.get(hook.event, ("",)):
            matching = [each for each in ours if each.event == hook.event and each.matches(value)]
            if len(matching) > 1:
                double[hook.event] = matching
    if not double:
        return
    places = {each.source.path: each.source for matching in double.values() for each in matching}
    scopes = [source.scope for source in places.values()]
    if len(places) == 1:
        remedy = install_line(ctx, agent, scopes[0])
    elif PLUGIN in scopes:
        remedy = f"compactor uninstall {agent.name}{' --project' if 'project' in scopes else ''} (the plugin stays)"
    else:
        remedy = f"compactor uninstall {agent.name} --project"
    where = " and ".join(f"{path} ({source.scope})" for path, source in places.items())
    yield wrong(f"{agent.title} calls compactor more than once for {', '.join(double)}: {where}", remedy)


def _outdated(ctx: DoctorContext, agent: CodingAgent, ours: Sequence[RegisteredHook]) -> Iterator[Finding]:
    for scope in (ctx.user, ctx.project):
        mine = next((each for each in ours if each.source.scope == scope.name), None)
        if mine is None:
            continue
        install = install_line(ctx, agent, scope.name)
        named = hook_command(mine.entry) or BY_NAME
        command = ctx.command or named if named == BY_NAME and not scope.is_project else named
        try:
            records = InstallRecords(ctx.env)
            plans = [plan_install(agent, target, records) for target in targets(agent, scope, command)]
        except CompactorError as error:
            yield wrong(f"{agent.title}: {error}", f"Correct it, then {install}")
            continue
        changed = [str(plan.path) for plan in plans if plan.is_changed and any("hooks" in each for each in plan.was)]
        if changed:
            yield look(f"{', '.join(changed)} has our hooks as an older version wrote them", install)


# Programs that shorten or rewrite an agent's context too, by words in what is run.
_SIMILAR_PROGRAMS = (
    "claude-mem",
    "context-mode",
    "magic-context",
    "dynamic-context-pruning",
    "headroom",
    "lossless-claw",
    "supermemory",
)
_AROUND = {"PreCompact": ("auto", "manual"), "PostCompact": ("auto", "manual"), "SessionStart": ("compact",)}
_ONE_OWNER = "Let only one of them manage the context: switch one off"


def others(ctx: DoctorContext, agent: CodingAgent) -> Iterator[Finding]:
    """What else takes part in the compactions of an agent."""
    found = sources(ctx, agent)
    hooks = hooks_of(found)
    if not any(hook.is_ours for hook in hooks):
        return
    foreign = [hook for hook in hooks if not hook.is_ours]
    for name, where in _similar_programs(foreign, found).items():
        yield look(f"{name} works on the context of {agent.title} too ({where})", _ONE_OWNER)
    around = [hook for hook in foreign if _similar_name(hook.command) is None and _is_around(hook)]
    for hook in around:
        what = f"{agent.title} also calls `{one_line(hook.command, 100)}` for {hook.event} ({hook.source.path})"
        yield look(what, "Make sure that it does not compact or add to the context as well, or switch one off")
    beside = [hook for hook in foreign if hook.event == "PostToolUse" and _similar_name(hook.command) is None]
    if beside:
        names = ", ".join(f"`{one_line(hook.command, 60)}`" for hook in beside[:3])
        yield ok(f"{agent.title} also calls {names} after tools; that does no harm unless it replaces outputs")


def _similar_programs(foreign: list[RegisteredHook], found: list[SettingsSource]) -> dict[str, str]:
    named = {name: f"{hook.event} in {hook.source.path}" for hook in foreign if (name := _similar_name(hook.command))}
    for source in found:
        plugins = source.values.get("enabledPlugins")
        for plugin, is_on in plugins.items() if isinstance(plugins, dict) else ():
            if is_on is not False and (name := _similar_name(plugin)):
                named.setdefault(name, f"plugin {plugin} in {source.path}")
    return named


def _similar_name(command: str) -> str | None:
    return next((name for name in _SIMILAR_PROGRAMS if name in command.lower()), None)


def _is_around(hook: RegisteredHook) -> bool:
    return any(hook.matches(value) for value in _AROUND.get(hook.event, ()))
