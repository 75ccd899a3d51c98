"""Every setting with its default and its explanation, the levels and models that settings are made of, and how values
are read and shown."""

from __future__ import annotations

import ast
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct

from context_compactor.errors import BadSetting


class Level(StrEnum):
    """How urgent a compaction is."""

    SOFT = "soft"
    AGGRESSIVE = "aggressive"
    EMERGENCY = "emergency"


class LevelRule(Struct, frozen=True):
    """A level begins at `threshold` and ends at `target`; both are shares of the budget."""

    level: Level
    threshold: float
    target: float


DEFAULT_LEVELS: tuple[LevelRule, ...] = (
    LevelRule(Level.SOFT, 0.80, 0.40),
    LevelRule(Level.AGGRESSIVE, 0.85, 0.25),
    LevelRule(Level.EMERGENCY, 0.95, 0.15),
)


class Spending(Struct, frozen=True):
    """What model calls have taken: US dollars, as far as prices are known, and attempts, retries among them."""

    dollars: float = 0.0
    attempts: int = 0

    def plus(self, other: Spending) -> Spending:
        """Both together."""
        return Spending(self.dollars + other.dollars, self.attempts + other.attempts)

    def take(self, more: Spending, check: SpendingCheck) -> Spending:
        """The same with more, unless `look` raises at the sight of what was spent before."""
        check(self)
        return self.plus(more)


SpendingCheck = Callable[[Spending], None]


class SharedBudget(Spending, frozen=True, kw_only=True):
    """What several spend from at the same time. `keep` has the sum: it looks and adds as one step."""

    keep: Callable[[Spending, SpendingCheck], None]

    def plus(self, other: Spending) -> Spending:  # noqa: ARG002
        """Itself: what was taken from it is in it already."""
        return self

    def take(self, more: Spending, check: SpendingCheck) -> Spending:
        """Itself, with more taken from it."""
        self.keep(more, check)
        return self


_log = logging.getLogger("context_compactor")
RETIRED = {
    "plan_with_model": "Leave it out: the model writes the record, and the engine alone decides which turns stay.",
}
"""Settings that earlier versions had, and what to do about them. They are read past, not refused."""
RENAMED = {
    "model_window": "summarizer_window",
    "model_input_tokens": "summarizer_input_tokens",
    "model_parallel_calls": "summarizer_parallel_calls",
    "prices": "models",
}
"""Former names of settings. They are still read, with a note that names the new one."""
RENAMED_IN_SESSIONS = {"model": "summarizer", **RENAMED}
"""The same in stored sessions. What they say of the agent's model is no part of their settings."""
CONFIG_FILE = Path(".compactor/config.toml")
ENV_PREFIX = "COMPACTOR_"
_LONGEST_SHOWN = 400
_PROVIDERS = ("openai/", "anthropic/", "litellm/")
_USERINFO = re.compile(r"//[^/?\s]*@")
# The parts of a request that differ between the agent's and ours.
_OURS = frozenset({"messages", "model", "max_tokens", "max_completion_tokens", "stream", "stream_options"})

# What is more than that can be meant by nobody, and some of it could not be reckoned with.
_MOST = 10**12
_YEAR = 365 * 24 * 60 * 60

Tokens = Annotated[int, Meta(ge=1, le=_MOST)]
Bytes = Annotated[int, Meta(ge=1, le=_MOST)]
Count = Annotated[int, Meta(ge=0, le=_MOST)]
Seconds = Annotated[float, Meta(ge=0, le=_YEAR)]
Share = Annotated[float, Meta(ge=0, le=1)]
Percent = Annotated[float, Meta(ge=0, le=100)]
LayoutName = Literal["auto", "tail", "record"]
AgentCompaction = Literal["ours", "steered", "beside"]
ProxyMode = Literal["on", "record", "off"]
Dollars = Annotated[float, Meta(ge=0, le=_MOST)]
Rate = Annotated[float, Meta(ge=0, le=10**9)]


class ModelEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What you say about a model; what you leave out is what the built-in table says.

    Prices are US dollars for a million tokens. With `input` the price is wholly yours: without rates for the cache the
    input rate is used, and without `output` what answers cost is not known. `cache_minutes` is how long an unused
    prefix stays in the provider's cache. A request of more than `long_above` tokens costs `long_input` times as much
    to read and `long_output` times as much to answer.
    """

    window: Tokens | None = None
    max_output: Tokens | None = None
    input: Rate | None = None
    output: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_minutes: Annotated[float, Meta(ge=0, le=_YEAR)] | None = None
    long_above: Tokens | None = None
    long_input: Rate | None = None
    long_output: Rate | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """How compaction behaves. A value outside its range raises `BadSetting`."""

    enabled: bool = True
    """When off, nothing is changed anywhere: every compaction returns `unchanged`."""

    automatic: bool = True
    """Compact a session when a level is reached. When off, only when asked; events still report levels."""

    window: Tokens | None = None
    """Tokens that the agent's model accepts in one request. By default the known window of the model."""

    reserve_output_tokens: Count | None = None
    """Tokens of the window kept free for the model's answer. By default an eighth of the window, at most 8,192."""

    overhead_tokens: Count = 0
    """Tokens sent with every request outside the messages, such as a separate system prompt or tool definitions."""

    recall_tool: bool | None = None
    """Whether the agent can call a tool named `recall`: only then what it reads says so. By default that is known from
    its tools: those given as `tools`, those of `session.tools()`, and those that `compactor install` sets up."""

    max_request_bytes: Bytes | None = None
    """The largest request, in bytes. By default the limit of the dialect's provider."""

    levels: tuple[LevelRule, ...] = DEFAULT_LEVELS
    """The threshold and the target of each level, as shares of the budget."""

    wait_for_boundary: bool = True
    """Let a soft compaction wait for a task boundary (tests passed, a commit, a finished to-do item, the user's next
    request), as long as one more step cannot reach the aggressive level."""

    rearm_margin: Share = 0.05
    """Levels fire again once usage has fallen below the soft threshold minus this share."""

    model_auto_compact_token_limit: Tokens | None = None
    """Compact from this many tokens on, even below the soft threshold."""

    suggest_tool_results: Count = 50
    """Suggest a compaction at this many tool results in the context, and after each further that many; 0 never."""

    suggest_share: Share = 0.70
    """In a coding agent, suggest a compaction when this share of its window is used; 0 never."""

    suggest_files: Count = 20
    """Suggest a compaction at this many files in the context; 0 never."""

    counters_compact: bool = False
    """Let `suggest_tool_results` and `suggest_files` start a compaction instead of suggesting one."""

    preserve_recent_turns: Count = 5
    """Number of newest turns that stay word for word at the soft and aggressive levels."""

    tail_share: Share = 0.15
    """The largest share of the target that these turns may take."""

    layout: LayoutName = "auto"
    """The shape of a compacted context: `tail` is the record followed by the newest turns, `record` is one message with
    the open question last, `auto` is what the provider accepts."""

    min_gain_percent: Percent = 10.0
    """A compaction that would save less than this percentage changes nothing."""

    agent_compaction: AgentCompaction = "ours"
    """Who compacts in a coding agent: `ours` puts our record in the place of its summary where the agent allows that,
    `steered` lets its own model write in our format, `beside` leaves its summary as it is and adds what that lost."""

    agent_record_tokens: Annotated[int, Meta(ge=1_000, le=100_000)] = 6_000
    """Tokens of the record or summary that a coding agent goes on with after a compaction."""

    proxy_mode: ProxyMode = "on"
    """What `compactor proxy` does with what passes: `on` records it and compacts, `record` only records, `off` only
    passes it on. A request says otherwise with the header `x-compactor-mode`."""

    proxy_holdout: Share = 0.05
    """The share of conversations of agents that compact by themselves which the proxy leaves to them, so that
    `compactor proxy report` can compare what both cost. Whether one is among them follows from its id, for good."""

    max_output_tokens: Tokens = 5_000
    """A longer tool output is cut to its beginning and end when it is appended to a session."""

    replace_outputs: bool = True
    """Let hooks do the same in a coding agent, before its model sees the output. Answers of sub-agents are cut at 500
    tokens."""

    brief_subagents: bool = True
    """Let hooks give a new sub-agent the rules, decisions and failures of its caller, in at most 500 tokens."""

    model: str | None = None
    """Model that runs the agent, such as `claude-sonnet-4-5`, if neither the caller nor the log names it. Its window,
    tokenizer and prices are used. It is never called; the model that writes summaries is `summarizer`."""

    summarizer: str | None = None
    """Model that writes summaries, such as `openai/NAME`. Without one nothing leaves the machine."""

    summarizer_window: Tokens | None = None
    """Tokens that the summarizer accepts in one request. By default its published window, or 8,192 if unknown."""

    summarizer_input_tokens: Tokens | None = None
    """The most tokens of a conversation in one request to the summarizer; longer ones are split, and the summaries
    merged. By default as many as its window takes."""

    summarizer_parallel_calls: Annotated[int, Meta(ge=1, le=64)] = 4
    """Number of these requests that are sent at the same time."""

    agent_request: dict[str, Any] = {}
    """What the agent sends beside its messages, such as `system` and `tools`, unchanged. If `summarizer` is the agent's
    own model, the summary request can then reuse the provider's cache of the conversation."""

    models: dict[str, ModelEntry] = {}
    """What you know better than the [built-in table](models.md), by a model's name or a pattern with `*`:
    `[models."my-model"]` with any of `window`, `max_output`, `cache_minutes`, and in US dollars for a million tokens
    `input`, `output`, `cache_read`, `cache_write`. A whole name comes before a pattern."""

    compact_prompt: str | None = None
    """Replaces the prompt for the summarizer; its headings become sections of the record."""

    compact_prompt_file: str | None = None
    """The same, read from a file."""

    spend_limit: Dollars | None = None
    """Limit in US dollars for the model calls of one compaction."""

    session_spend_limit: Dollars | None = None
    """Limit in US dollars for all model calls of a session."""

    attempt_limit: Count = 100
    """Limit of requests to a model for one compaction, retries included; 0 sends none."""

    session_attempt_limit: Count | None = None
    """Limit of requests to a model for a whole session."""

    deadline_seconds: Seconds = 300.0
    """Time limit of one compaction, model calls included."""

    retry_attempts: Annotated[int, Meta(ge=1, le=20)] = 3
    """Number of attempts for archiving, a model call or a job."""

    retry_delay_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 2.0
    """Wait before the second attempt; it doubles for each further one."""

    idle_seconds: Seconds = 5.0
    """Time without a message after which long outputs are indexed and the next compaction is prepared; 0 never."""

    summarize_ahead: bool = True
    """Let the summarizer summarize older turns in that time, so that a compaction need not wait for it."""

    extract_facts: bool = True
    """Extract decisions, failures, constraints and file states as facts of the session."""

    promote_to_memory: bool = True
    """Write lasting rules, architectural decisions and recurring errors to `.compactor/learned/`, for later sessions of
    the same owner. A session without an owner neither writes nor reads there."""

    notify_on_compact: bool = False
    """Show a desktop notification after every compaction (`notify-send` or `osascript`), or ring the terminal bell. A
    server, a worker and a CI job (`CI` is set) show none."""

    store: str = "sqlite:///.compactor/compactor.db"
    """Where sessions and originals are stored: a SQLite file, or `postgresql://user:password@host/database`."""

    archive_dir: str | None = ".tmp/context-archive"
    """Folder in the project for readable copies of archived originals; none writes no copies."""

    redact_secrets: bool = False
    """Replace what looks like a secret before anything is written; history and recall return the replaced text."""

    retention_days: Annotated[float, Meta(gt=0, le=36_500)] | None = None
    """Delete sessions that were not used for this many days. By default nothing expires."""

    def output_reserve(self, window: int) -> int:
        """Tokens kept free for the answer in a window of this size."""
        return min(8_192, window // 8) if self.reserve_output_tokens is None else self.reserve_output_tokens

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            read_value(name, getattr(self, name), "argument")


class LoadedSettings(Struct, frozen=True):
    """Settings with the place each came from, and the variables that look like settings but are none."""

    settings: Settings
    origins: dict[str, str]
    ignored: tuple[str, ...] = ()


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    config_path: str | Path | None = None,
) -> LoadedSettings:
    """Read defaults, then `config.toml`, then the environment, then `overrides`; the last one wins.

    An override of `None` counts as not given.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.__struct_fields__, "default")
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    for origin, name, raw in (*_from_file(config_path), *_from_env(env), *_named(given, "argument")):
        values[name] = read_value(name, raw, origin)
        origins[name] = origin
    if "summarizer" not in values:
        _refuse_former_summarizer(values.get("model"), origins["model"])
    ignored = sorted(name for name in env.keys() - _variables().keys() if name.startswith(ENV_PREFIX))
    return LoadedSettings(Settings(**values), origins, tuple(ignored))


def read_value(name: str, raw: Any, origin: str) -> Any:
    """One value as its setting's type, or `BadSetting` with the value, the range and where it came from."""
    try:
        special = _READERS.get(name)
        value = special(raw) if special else _read_scalar(name, raw)
        msgspec.json.encode(value, enc_hook=str)  # half a character could be kept nowhere
    except (msgspec.ValidationError, ValueError) as error:
        raise BadSetting(f"{name}: {raw!r:.{_LONGEST_SHOWN}} is not {expected(name)} (from {origin})") from error
    return value


def expected(name: str) -> str:
    """What a setting accepts, in words."""
    if name == "levels":
        return "rising thresholds between 0 and 1, all above every target, such as soft=0.80:0.40,emergency=0.95:0.15"
    if name == "models":
        return 'windows and prices by model, such as {"my-model": {"window": 64000, "input": 0.4, "output": 1.6}}'
    if name == "agent_request":
        return f'a request without {", ".join(sorted(_OURS))}, such as {{"system": "…", "tools": []}}'
    inner, optional = _inspect(name)
    return _in_words(inner) + (", or none" if optional else "")


Given = tuple[str, str, Any]


def _from_file(config_path: str | Path | None) -> list[Given]:
    path = CONFIG_FILE if config_path is None else Path(config_path)
    if config_path is None and not path.is_file():
        return []
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{path} cannot be read: {error}") from error
    return _named(values, str(path))


def _from_env(env: Mapping[str, str]) -> list[Given]:
    found = {variable: {name: env[variable]} for variable, name in _variables().items() if env.get(variable)}
    return [given for variable, values in found.items() for given in _named(values, variable)]


def _variables() -> dict[str, str]:
    """The environment variable of each setting, former names first: the current one wins."""
    return {f"{ENV_PREFIX}{name.upper()}": name for name in (*RENAMED, *Settings.__struct_fields__)}


def _named(values: Mapping[str, Any], origin: str) -> list[Given]:
    values = current_names(values, origin)
    for name in values:
        if name not in Settings.__struct_fields__:
            from difflib import get_close_matches

            near = get_close_matches(name, Settings.__struct_fields__, n=1)
            hint = f"did you mean {near[0]}?" if near else "`compactor config` lists all"
            raise BadSetting(f"{name}: no such setting (from {origin}); {hint}")
    return [(origin, name, value) for name, value in values.items()]


def current_names(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The values by the current names of their settings; a warning names each that was renamed or is gone."""
    for name in sorted(RETIRED.keys() & values.keys()):
        _log.warning("%s: this setting is gone and has no effect (from %s). %s", name, origin, RETIRED[name])
    for name in sorted(RENAMED.keys() & values.keys()):
        _log.warning("%s: this setting is deprecated (from %s). Use %s.", name, origin, RENAMED[name])
    known = {name: value for name, value in values.items() if name not in RETIRED}
    former = {RENAMED[name]: known.pop(name) for name in RENAMED if name in known}
    for name in former.keys() & known.keys():
        if isinstance(former[name], Mapping) and isinstance(known[name], Mapping):
            known[name] = {**former[name], **known[name]}
    return {**former, **known}


def is_address(model: str | None) -> bool:
    """Whether a model is named by the address of its server, such as `http://127.0.0.1:8080/v1#NAME`."""
    return model is not None and model.startswith(("http://", "https://"))


def check_agent_model(model: object, summarizer: object) -> None:
    """`BadSetting` for a `model` that can only be meant to write summaries, as it did in earlier versions."""
    if model is not None and not isinstance(model, str):
        raise BadSetting(
            f"model is {model!r:.60}; it must be the name of the model that runs the agent. "
            "Try: summarizer=… for a model that writes summaries."
        )
    if summarizer is None and is_address(model):
        raise BadSetting(
            f"model: {model!r:.{_LONGEST_SHOWN}} is the model that runs the agent, and no summarizer is named. "
            "Try: summarizer=… in its place if it is to write summaries, else the model's bare name."
        )


def _refuse_former_summarizer(model: str | None, origin: str) -> None:
    """`BadSetting` for a `model` that earlier versions would have had write the summaries, with no summarizer beside.

    It would be silently left unused. An argument of the library or the command line may name the agent's model as the
    provider does.
    """
    is_by_provider = model is not None and model.startswith(_PROVIDERS)
    if is_address(model) or (is_by_provider and origin != "argument"):
        start, end = (f"{ENV_PREFIX}SUMMARIZER=", "") if origin.startswith(ENV_PREFIX) else ('summarizer = "', '"')
        raise BadSetting(
            f"model: {model!r:.{_LONGEST_SHOWN}} is the model that runs the agent, and no summarizer is named (from "
            f"{origin}); earlier versions had `model` write the summaries. "
            f"Try: {start}{model:.{_LONGEST_SHOWN}}{end} in its place, or {start}none{end} beside it if no model is to "
            "write them."
        )


def _read_scalar(name: str, raw: Any) -> Any:
    inner, optional = _inspect(name)
    if isinstance(raw, str) and isinstance(inner, msgspec.inspect.LiteralType):
        raw = raw.strip().lower()
    elif isinstance(raw, str) and not isinstance(inner, msgspec.inspect.StrType):
        raw = _as_value(raw.strip().lower())
    if optional and raw in ("none", None):
        return None
    if isinstance(raw, float) and raw - raw != 0:  # neither infinity nor NaN is a number of anything
        raise ValueError(raw)
    return msgspec.convert(raw, _types()[name], strict=not isinstance(raw, str))


def _as_value(text: str) -> str | bool:
    if text in ("on", "yes", "off", "no"):
        return text in ("on", "yes")
    number, unit = text.replace("_", ""), text[-1:]
    return number[:-1] + {"k": "000", "m": "000000"}[unit] if unit in ("k", "m") else number


class _LevelChange(Struct, forbid_unknown_fields=True, omit_defaults=True):
    threshold: float | None = None
    target: float | None = None


def _read_levels(raw: Any) -> tuple[LevelRule, ...]:
    rules = msgspec.convert(_level_rules(raw), tuple[LevelRule, ...])
    levels = [rule.level for rule in rules]
    starts = [rule.threshold for rule in rules]
    in_order = levels == [level for level in Level if level in levels] and starts == sorted(set(starts))
    in_range = bool(rules) and starts[-1] <= 1 and all(0 < rule.target < starts[0] for rule in rules)
    if not (in_order and in_range):
        raise ValueError(raw)
    return rules


def _level_rules(raw: Any) -> Any:
    if isinstance(raw, str):
        triples = [rule.replace("=", ":").split(":") for rule in raw.split(",")]
        raw = {level.strip(): {"threshold": float(start), "target": float(end)} for level, start, end in triples}
    if not isinstance(raw, Mapping):
        return raw
    changes = msgspec.convert(raw, dict[Level, _LevelChange])
    return [
        {**msgspec.to_builtins(rule), **msgspec.to_builtins(changes.get(rule.level, {}))} for rule in DEFAULT_LEVELS
    ]


def _read_models(raw: Any) -> dict[str, ModelEntry]:
    return msgspec.convert(msgspec.json.decode(raw) if isinstance(raw, str) else raw, dict[str, ModelEntry])


def _read_request(raw: Any) -> dict[str, Any]:
    given = msgspec.convert(msgspec.json.decode(raw) if isinstance(raw, str) else raw, dict[str, Any])
    if ours := sorted(_OURS & set(given)):
        raise ValueError(ours)
    return given


def _read_model(setting: str, raw: Any) -> Any:
    name = _read_scalar(setting, raw)
    if name is not None:
        refuse_password(setting, name)
    return name


def refuse_password(what: str, name: str) -> None:
    """`BadSetting` for an address that holds a user or a password: settings and names of models are stored and shown.

    The error does not repeat it.
    """
    if _USERINFO.search(name):
        raise BadSetting(
            f"{what}: an address with a user or a password in it would be stored and shown with every session. "
            "Try: the address without them, and the key in the environment variable MODEL_API_KEY."
        )


_READERS: dict[str, Callable[[Any], Any]] = {
    "model": partial(_read_model, "model"),
    "summarizer": partial(_read_model, "summarizer"),
    "levels": _read_levels,
    "models": _read_models,
    "agent_request": _read_request,
}


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Settings, include_extras=True)


@cache
def _inspect(name: str) -> tuple[msgspec.inspect.Type, bool]:
    found = msgspec.inspect.type_info(_types()[name])
    if not isinstance(found, msgspec.inspect.UnionType):
        return found, False
    return next(kind for kind in found.types if not isinstance(kind, msgspec.inspect.NoneType)), True


def _in_words(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.BoolType):
        return "on or off"
    if isinstance(kind, msgspec.inspect.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    if not isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        return "text"
    noun = "a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"
    if kind.ge is None:
        return f"{noun} above {kind.gt:,}, at most {kind.le:,}"
    return f"{noun} from {kind.ge:,} to {kind.le:,}"


def setting_docs() -> dict[str, str]:
    """What each setting does, as it is written under its field."""
    module = ast.parse(inspect.getsource(sys.modules[__name__]))
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    docs: dict[str, str] = {}
    for field, under in pairwise(classes[Settings.__name__].body):
        if isinstance(field, ast.AnnAssign) and isinstance(under, ast.Expr) and isinstance(under.value, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(under.value.value).split())
    return docs


def setting_text(value: Any) -> str:
    """A value as it would be written in the environment."""
    if isinstance(value, tuple):
        return ",".join(f"{rule.level}={rule.threshold:.2f}:{rule.target:.2f}" for rule in value)
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else mask_password(str(value))


def mask_password(text: str) -> str:
    """A text without the password that an address in it may have."""
    from context_compactor.store_urls import without_password

    return without_password(text)
