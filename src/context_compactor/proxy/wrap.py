"""An agent with a proxy of its own: both are started together, and end together."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, structs

from context_compactor.errors import BadInput
from context_compactor.files import make_private_folder
from context_compactor.proxy.relay import OPENAI, check_upstream
from context_compactor.proxy.server import ProxyOptions, running_proxy

_CHATGPT = "https://chatgpt.com/backend-api/codex"
_SIGNALLED = 128


class WrappedCommand(Struct, frozen=True):
    """A command, where its requests go by default, and how it is told the address of the proxy."""

    command: Sequence[str]
    upstream: str
    environment: Callable[[str], Mapping[str, str]]
    arguments: Callable[[str], Sequence[str]] = lambda _: ()


def wrapped_command(agent: str, arguments: Sequence[str]) -> WrappedCommand:
    """What `compactor wrap` starts: one of the agents by its name, or any command."""
    if agent in ("claude", "claude-code"):
        return WrappedCommand(
            ("claude", *arguments),
            os.environ.get("ANTHROPIC_BASE_URL", ""),
            lambda address: {"ANTHROPIC_BASE_URL": address, "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"},
        )
    if agent == "codex":
        setting, upstream = _codex_provider()
        return WrappedCommand(
            ("codex", *arguments),
            _origin(upstream),
            lambda _: {},
            lambda address: ("-c", f'{setting}="{address}{urlsplit(upstream).path.rstrip("/")}"'),
        )
    return WrappedCommand((agent, *arguments), "", _for_any)


def _for_any(address: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": address,
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_BASE": f"{address}/v1",
    }


def _codex_provider() -> tuple[str, str]:
    """The setting by which Codex knows where to send its requests, and what it is: that of a provider in its
    configuration, else ChatGPT for an account and the API for a key."""
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    with suppress(OSError, ValueError, AttributeError, KeyError):
        known = tomllib.loads((home / "config.toml").read_text(encoding="utf-8"))
        name = known.get("model_provider", "openai")
        if name != "openai":
            return f"model_providers.{name}.base_url", known["model_providers"][name]["base_url"]
        if given := known.get("openai_base_url"):
            return "openai_base_url", given
    if given := os.environ.get("OPENAI_BASE_URL"):
        return "openai_base_url", given
    with suppress(OSError, ValueError, AttributeError):
        account = json.loads((home / "auth.json").read_text(encoding="utf-8"))
        if account.get("tokens") and not account.get("OPENAI_API_KEY"):
            return "openai_base_url", _CHATGPT
    return "openai_base_url", f"{OPENAI}/v1"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def run_wrapped(wrapped: WrappedCommand, options: ProxyOptions, log: Path) -> int:
    """Run a command behind a proxy on a port of its own; the exit code of the command.

    What the proxy has to say goes to a log: the screen is the agent's.
    """
    program = shutil.which(wrapped.command[0])
    if program is None:
        raise BadInput(f"{wrapped.command[0]!r:.80} was not found. Try: install it, or give its path behind --.")
    if not options.config.upstream and wrapped.upstream:
        config = structs.replace(options.config, upstream=check_upstream(wrapped.upstream))
        options = structs.replace(options, config=config)
    make_private_folder(log.parent)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as lines:
        logging.basicConfig(level=logging.WARNING, stream=lines, format="%(asctime)s %(levelname)s: %(message)s")
        return asyncio.run(_run(program, wrapped, structs.replace(options, port=0, log_file=lines.fileno())))


async def _run(program: str, wrapped: WrappedCommand, options: ProxyOptions) -> int:
    async with running_proxy(options) as address:
        command = [program, *wrapped.arguments(address), *wrapped.command[1:]]
        environment = {**os.environ, **wrapped.environment(address), **_without_proxies()}
        # Ctrl-C is for the agent, which shares the terminal: it decides whether it ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        child = await asyncio.create_subprocess_exec(*command, env=environment, preexec_fn=_take_signals)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, _pass_signal, child, number)
        code = await child.wait()
    return code if code >= 0 else _SIGNALLED - code


def _take_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _pass_signal(child: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(number)


def _without_proxies() -> dict[str, str]:
    """The address of the proxy is on this machine, whatever other proxies are set."""
    known = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    value = ",".join(filter(None, (known, "127.0.0.1,localhost")))
    return {"NO_PROXY": value, "no_proxy": value}
