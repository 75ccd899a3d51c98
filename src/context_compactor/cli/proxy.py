"""`compactor proxy` and `wrap`: between an agent and its provider."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from context_compactor.cli.options import AsJson, StoreUrl, open_store
from context_compactor.cli.output import print_json, stderr
from context_compactor.errors import BadSetting, MissingExtra
from context_compactor.settings import load_settings

if TYPE_CHECKING:
    from context_compactor.proxy.server import ProxyOptions

_PROXY_MODULES = ("aiohttp", "multidict", "yarl", "brotli")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

ReportAction = Annotated[
    str | None,
    typer.Argument(metavar="[report]", help="`report` prints what requests have cost, and starts nothing."),
]
Upstream = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where requests go, such as http://127.0.0.1:8080; by default to Anthropic or OpenAI, by their path.",
    ),
]
ProxyHost = Annotated[str, typer.Option("--host", metavar="NAME", help="Where to listen.")]
ProxyPort = Annotated[int, typer.Option("--port", metavar="N", help="The port; 0 takes a free one.")]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="on|record|off",
        help="`on` records and compacts, `record` only records, `off` only passes on; by default the setting "
        "`proxy_mode`. A request says otherwise with the header x-compactor-mode.",
    ),
]
ProxyWindow = Annotated[
    str | None,
    typer.Option("--window", metavar="N", help="Tokens the model accepts, for clients that never compact."),
]
Holdout = Annotated[
    str | None,
    typer.Option(
        metavar="P%",
        help="Share of the conversations of agents that compact by themselves which is left to them, to compare "
        "what both cost; by default the setting `proxy_holdout`.",
    ),
]
MaxBody = Annotated[
    int, typer.Option("--max-body", min=1, max=1024, metavar="MB", help="Larger requests are passed on unrecorded.")
]
Since = Annotated[
    str, typer.Option(metavar="DATE", help="With report: only requests from this day on, such as 2026-11-01.")
]


def proxy(
    action: ReportAction = None,
    upstream: Upstream = None,
    host: ProxyHost = "127.0.0.1",
    port: ProxyPort = 8379,
    store: StoreUrl = None,
    mode: Mode = None,
    window: ProxyWindow = None,
    holdout: Holdout = None,
    max_body: MaxBody = 64,
    since: Since = "",
    as_json: AsJson = False,
) -> None:
    """Run a proxy between agents and their provider: every conversation becomes a session, and is kept in its window.

    Requests and answers pass byte for byte while they are streamed. When Claude Code or Codex ask for a summary of
    their conversation, our record is the answer; for programs that never compact, one is made when the window fills.
    Keys are passed on and never stored. Ctrl-C finishes what is under way.

    Example: `compactor proxy`, then `ANTHROPIC_BASE_URL=http://127.0.0.1:8379 claude`
    """
    if action == "report":
        _report(store, since, as_json)
        return
    if action is not None:
        raise BadSetting(f"proxy: {action!r:.40} is not an action. Try: `compactor proxy` or `compactor proxy report`.")
    options = proxy_options(
        upstream, host=host, port=port, store=store, mode=mode, window=window, holdout=holdout, max_body=max_body
    )
    from context_compactor.proxy.server import run_proxy

    logging.basicConfig(level=logging.WARNING, format=_FORMAT)
    out = stderr()
    if not options.config.loopback_only:
        out.print(f"warning: anybody who reaches {host} can send requests through this proxy", style="yellow")
    where = options.config.upstream or "Anthropic or OpenAI"

    def announce(address: str) -> None:
        out.print(f"listening at {address}, passing on to {where}; Ctrl-C stops")
        out.print(f"  Claude Code: ANTHROPIC_BASE_URL={address} claude      (or: compactor wrap claude)", style="dim")
        out.print(f"  OpenAI SDK:  OPENAI_BASE_URL={address}/v1", style="dim")

    run_proxy(options, announce)
    out.print("stopped")


def _report(store: str | None, since: str, as_json: bool) -> None:
    from context_compactor.cli.proxy_report import print_report
    from context_compactor.proxy.bills import make_report, to_dict

    with open_store(store) as opened:
        report = make_report(opened, since, load_settings().settings)
    if as_json:
        print_json(to_dict(report))
    else:
        print_report(report)


def proxy_options(
    upstream: str | None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    store: str | None = None,
    mode: str | None = None,
    window: str | None = None,
    holdout: str | None = None,
    max_body: int = 64,
) -> ProxyOptions:
    """What a proxy is started with, or an error that says what is wrong with it."""
    try:
        from context_compactor.proxy.relay import ProxyConfig, check_upstream
        from context_compactor.proxy.server import ProxyOptions, journal_folder
        from context_compactor.server.config import LOOPBACK_HOSTS
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _PROXY_MODULES:
            raise
        raise MissingExtra("the proxy", "proxy") from error
    if not 0 <= port < 65_536:
        raise BadSetting(f"--port: {port} is not a port number. Try: a number from 1 to 65535, or 0 for a free one.")
    share = None if holdout is None else _share(holdout)
    given = {"store": store, "window": window, "proxy_mode": mode, "proxy_holdout": share}
    settings = load_settings(given).settings
    address = settings.store
    journal_folder(address)
    config = ProxyConfig(
        upstream=check_upstream(upstream) if upstream else "",
        mode=settings.proxy_mode,
        window=settings.window,
        max_body_bytes=max_body << 20,
        loopback_only=host in LOOPBACK_HOSTS,
    )
    return ProxyOptions(config=config, store=address, host=host, port=port, holdout=settings.proxy_holdout)


def _share(text: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadSetting(f"--holdout: {text!r:.40} is not a share. Try: 5%, or 0 for none.")
    return share


WrapAgent = Annotated[str, typer.Argument(metavar="AGENT", help="claude, codex, or -- and any command.")]
WrapArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]...", help="What the agent is started with, as you would type it.")
]


def wrap(
    agent: WrapAgent,
    arguments: WrapArguments = None,
    upstream: Upstream = None,
    store: StoreUrl = None,
    mode: Mode = None,
    window: ProxyWindow = None,
    holdout: Holdout = None,
) -> None:
    """Start an agent with a proxy of its own between it and its provider, and end both together.

    The address is set for the agent alone: nothing of its settings is changed. The exit code is the agent's. Options of
    the proxy stand before the agent's name, everything behind it is the agent's.

    Example: `compactor wrap claude --continue`, or `compactor wrap -- python my_agent.py`
    """
    options = proxy_options(upstream, store=store, mode=mode, window=window, holdout=holdout)
    from context_compactor.proxy.wrap import run_wrapped, wrapped_command

    log = Path(".compactor/logs/proxy.log")
    raise typer.Exit(run_wrapped(wrapped_command(agent, arguments or []), options, log))
