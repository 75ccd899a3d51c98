"""When the next hook has something to do: what `quick.py` compares without reading settings."""

from __future__ import annotations

import os

from context_compactor.agents.keeping_up import remember
from context_compactor.agents.places import fingerprint
from context_compactor.agents.tally import Row
from context_compactor.hooks.call import Call
from context_compactor.measure.windows import window_for

# No text has so few characters for each token, or hardly any: what is below need not be counted.
_LEAST_CHARS = 2
_NEVER = 0


def set_alarms(call: Call, **more: object) -> Row:
    """Note when this session has to be looked at again, under the settings as they are; `more` is noted as well."""
    settings = call.settings
    values = {
        "agent": call.agent.name,
        "transcript": call.log.path,
        "settings": fingerprint(call.root, os.environ),
        "wake_calls": next_alarm(call, call.row),
        "wake_tokens": int(settings.suggest_share * window_of(call)),
        "wake_bytes": _LEAST_CHARS * settings.max_output_tokens if settings.replace_outputs else _NEVER,
    }
    return remember(call.log, **values | more)


def next_alarm(call: Call, row: Row | None) -> int:
    """The next number of calls at which a compaction is suggested."""
    every = call.settings.suggest_tool_results
    calls = row.calls if row else 0
    return (calls // every + 1) * every if every else _NEVER


def window_of(call: Call) -> int:
    """Tokens of the agent's window, as far as they are known: what is set, else what its model takes."""
    model = call.text("model") or (call.row.model if call.row else "")
    told = None if model else call.agent.assumed_window
    return window_for(model, call.settings.window, told, call.agent.name, 0).tokens
