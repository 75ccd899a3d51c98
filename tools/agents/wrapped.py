"""The live check of `compactor wrap`: an agent that is started by us, in a script and in a terminal."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence

from context_compactor.dialects.record import OPENING
from tools.agents.behind_proxy import Recorded, recorded, running_with
from tools.agents.claude_code import ClaudeCode
from tools.agents.codex import Codex
from tools.agents.home import Home, new_home
from tools.agents.promises import Promise, told
from tools.agents.scripted import Request, Script, Step, scripted
from tools.agents.story import LOG, PROMPT
from tools.agents.terminal import terminal

_DONE, _GOES_ON = "The leeway of a day is why expired tokens are taken.", "I was interrupted, and go on."
_FEW, _MANY = 20_000, 190_000
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_END_SECONDS = 15.0
_SLEEPS = "time.sleep(47)"  # Claude Code refuses to run `sleep`
Agent = ClaudeCode | Codex


def wrapped(agent: Agent) -> Iterator[Promise]:
    """An agent in a script: it ends well, and it does not."""
    with new_home(agent.program) as home, scripted(agent.api, _story(agent)) as (address, model):
        agent.prepare(home, address)
        before = agent.settings(home)[0 if isinstance(agent, ClaudeCode) else 1].read_bytes()
        ran = _wrap(agent, home, address, *_prompt(agent))
        found = recorded(home)
        is_kept = not ran.returncode and ran.stdout.strip() == _DONE
        words = f"left with {ran.returncode}, printed {ran.stdout!r}{ran.stderr[-300:] * bool(ran.returncode)}"
        yield Promise("the agent works to its end, and only it prints", is_kept, words)
        yield _is_ours(model.requests, found)
        plain = _failing(agent, home, address, wraps=False)
        failed = _failing(agent, home, address, wraps=True)
        is_kept = plain.returncode == failed.returncode != 0 and plain.stdout == failed.stdout
        words = f"{failed.returncode}, without us {plain.returncode}; {failed.stderr.strip()[-100:]!r}"
        yield Promise("the exit code of an agent that fails is passed on", is_kept, words)
        after = agent.settings(home)[0 if isinstance(agent, ClaudeCode) else 1].read_bytes()
        named = _addresses(home) - {address}
        words = f"{'as before' if before == after else 'changed'}, addresses in other files: {told(list(named))}"
        yield Promise("nothing of the agent's settings is changed", before == after and not named, words)
        yield _nobody_left(home)


def _is_ours(requests: Sequence[Request], found: Recorded) -> Promise:
    """It went through a proxy, which has compacted."""
    answered, asked = len(found.of_kind("answered")), sum(request.lane == "compact" for request in requests)
    holding = sum(any(OPENING in text for text in request.texts) for request in requests)
    is_kept = answered == 1 and not asked and bool(holding) and len(found.histories) == 1
    words = f"{answered} compaction answered, {holding} requests with our record, sessions {list(found.histories)}"
    return Promise("it is recorded and compacted by us", is_kept, words)


def _wrap(agent: Agent, home: Home, address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    name = "claude" if isinstance(agent, ClaudeCode) else "codex"
    options = ("--upstream", address, "--holdout", "0")
    return home.compactor("wrap", *options, name, *arguments, **_env(agent, address))


def _prompt(agent: Agent) -> list[str]:
    return ["-p", PROMPT] if isinstance(agent, ClaudeCode) else ["exec", PROMPT]


def _failing(agent: Agent, home: Home, address: str, *, wraps: bool) -> subprocess.CompletedProcess[str]:
    """An option that it does not have."""
    arguments = [*_prompt(agent), "--no-such-option"]
    if wraps:
        return _wrap(agent, home, address, *arguments)
    return home.run([agent.program, *arguments], **_env(agent, address))


def _env(agent: Agent, address: str) -> dict[str, str]:
    if isinstance(agent, Codex):
        return agent.env()
    return {name: value for name, value in agent.env(address).items() if name != "ANTHROPIC_BASE_URL"}


def _addresses(home: Home) -> set[str]:
    """The addresses of this machine that stand in the files of the agent."""
    folders = [home.folder / ".claude", home.folder / ".codex"]
    files = [home.folder / ".claude.json", *(path for folder in folders for path in folder.rglob("*"))]
    texts = (path.read_bytes().decode(errors="replace") for path in files if path.is_file())
    return {address for text in texts for address in _ADDRESS.findall(text)}


def _nobody_left(home: Home) -> Promise:
    """Nothing runs any more that has to do with this home, and nothing waits to be recorded."""
    give_up = time.monotonic() + _END_SECONDS
    while (left := running_with(str(home.folder), "compactor")) and time.monotonic() < give_up:
        time.sleep(0.2)
    journal = [str(path) for path in (home.project / ".compactor" / "proxy").rglob("*")]
    words = f"{len(left)} of ours run, {len(journal)} files wait"
    return Promise("no proxy and no recorder is left", not left and not journal, words)


def _story(agent: Agent) -> Script:
    read = [agent.shell(f"log-{at}", f"sed -n '{at},{at + 50}p' {LOG}") for at in range(1, 600, 50)]
    return Script(
        main=[
            *(Step(call, _FEW) for call in read),
            Step(agent.shell("source", "cat src/auth/jwt.py"), _MANY),
            Step(agent.shell("again", "cat src/auth/jwt.py"), _FEW),
            Step(_DONE, _FEW),
        ],
        sub=[],
        summary="<summary>Nobody should have asked for this.</summary>",
    )


def typed(agent: ClaudeCode) -> Iterator[Promise]:
    """Claude Code in a terminal: Ctrl-C is for the agent, and the proxy goes on as long as it does."""
    story = Script(
        main=[Step(agent.shell("sleeping", f"python -c 'import time; {_SLEEPS}'"), _FEW), Step(_GOES_ON, _FEW)],
        sub=[],
        summary="",
    )
    with new_home(agent.program) as home, scripted(agent.api, story) as (address, model):
        agent.prepare(home, address)
        with terminal(home, **_env(agent, address)) as shell:
            shell.enter(f"compactor wrap --upstream {address} claude --permission-mode acceptEdits")
            shell.wait_for("accept edits on")
            shell.enter(PROMPT)
            _wait_for(_SLEEPS)
            recorders = running_with(str(home.folder), "proxy.recorder")
            shell.press("C-c")
            shell.wait_for("Interrupted")
            is_stopped = not running_with(_SLEEPS)
            still = running_with(str(home.folder), "proxy.recorder")
            words = (
                f"the command has {'ended' if is_stopped else 'not ended'}, the recorder was {recorders}, is {still}"
            )
            is_kept = is_stopped and bool(still) and still == recorders
            yield Promise("Ctrl-C interrupts the agent, and the proxy stays", is_kept, words)
            shell.enter("Go on.")
            shell.wait_for(_GOES_ON)
            yield Promise("the agent goes on after that", len(model.requests) > 1, f"{len(model.requests)} requests")
            shell.enter("/exit")
            shell.wait_for_end()
            screen = shell.screen()
            shell.enter("echo code $?")
            shell.wait_for("code 0")
            yield Promise("it ends with the agent", "Traceback" not in screen, "code 0")
        yield _nobody_left(home)
        found = recorded(home)
        names = list(found.histories)
        yield Promise("it is one session", len(names) == 1, told(names))


def _wait_for(command: str) -> None:
    """Wait until a command runs."""
    give_up = time.monotonic() + _END_SECONDS
    while not running_with(command) and time.monotonic() < give_up:
        time.sleep(0.1)
    time.sleep(1.0)
