"""What a caller may set for a session. Places, and the model that the server pays for, are the server's own."""

from __future__ import annotations

from typing import Any

from context_compactor.errors import BadSetting
from context_compactor.settings import Settings, load_settings, read_value, without_retired

SERVERS_OWN = frozenset(
    {
        # They name places of the server, or are about more than one session.
        "store",
        "archive_dir",
        "compact_prompt_file",
        "retention_days",
        # They say who writes summaries, what is sent there, and what is counted as its price.
        "model",
        "model_window",
        "model_input_tokens",
        "agent_request",
        "prices",
    }
)
LIMITS = frozenset(
    {
        "spend_limit",
        "session_spend_limit",
        "attempt_limit",
        "session_attempt_limit",
        "deadline_seconds",
        "model_parallel_calls",
        "summarize_ahead",
    }
)
"""What the model may take: a session may have less of it than the server allows, never more."""


def allowed_settings(given: dict[str, Any]) -> Settings:
    """The settings that were given, and none besides: what the server is set to may change later. Blocks."""
    named = {name: value for name, value in without_retired(given, "settings").items() if value is not None}
    own = sorted(SERVERS_OWN & set(named))
    if own:
        raise BadSetting(f"settings: {own[0]} is the server's own and cannot be set from outside. Try: without it.")
    load_settings(named)  # all of them together must make sense
    values = {name: read_value(name, value, "settings") for name, value in named.items()}
    servers = load_settings().settings
    for name in sorted(LIMITS & set(values)):
        most = getattr(servers, name)
        if most is not None and (values[name] is None or values[name] > most):
            raise BadSetting(
                f"settings: {name} is {most} at this server, and a session may only have less. Try: without it."
            )
    return Settings(**values)
