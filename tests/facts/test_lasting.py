"""Rules and decisions that were labelled as such still stand after many compactions, each on top of the last."""

from __future__ import annotations

from typing import Any

from context_compactor import compact

SUBJECTS = (
    "the ledger tables are append-only", "amounts are integers in cents", "never log an account number",
    "migrations are written by hand", "no new dependency without asking", "tests run against a real database",
    "the public API keeps its field names", "times are stored in UTC", "feature flags are read once per request",
    "errors carry a stable code", "the worker may be restarted at any time", "releases are cut on Tuesdays only",
)  # fmt: skip
LABELS = ("Rule:", "Important:", "Remember:", "Note:")
RULES = [f"{LABELS[at % 4]} {subject}." for at, subject in enumerate(SUBJECTS)]
DECISIONS = [
    "Decision: retries use exponential backoff, since the bank limits bursts.",
    "Decided: sessions live in Postgres because there is no Redis in production.",
    "Decision: invoices are rendered on the server, so that fonts are the same everywhere.",
    "Decision: we drop the XML export; nobody has used it since 2023.",
]


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def work(part: int, size: int = 30) -> list[dict[str, Any]]:
    """Steps of an agent that have nothing to do with the rules."""
    steps: list[dict[str, Any]] = [said("user", f"Now go through module {part} and fix what the linter reports.")]
    for at in range(size):
        name = f"c{part}_{at}"
        command = f'{{"command": "ruff check src/module_{part}/file_{at}.py"}}'
        call = {"id": name, "type": "function", "function": {"name": "bash", "arguments": command}}
        steps.append({"role": "assistant", "content": f"Looking at file {at} of module {part}.", "tool_calls": [call]})
        found = "\n".join(f"src/module_{part}/file_{at}.py:{line}: E{part}{line} value_{line}" for line in range(25))
        steps.append({"role": "tool", "tool_call_id": name, "content": found})
    return [*steps, said("assistant", f"Module {part} is clean.")]


def test_labelled_rules_and_decisions_outlive_six_compactions() -> None:
    messages = [said("system", "You are a careful engineer."), said("user", "Help me with the billing service.")]
    messages += [said("assistant", "Gladly."), said("user", "\n".join(RULES[:6])), said("assistant", "Understood.")]
    messages += work(0)
    for part in range(1, 7):
        messages += [said("user", RULES[5 + part]), said("assistant", "Noted.")]
        if part <= len(DECISIONS):
            speaker = "user" if part % 2 else "assistant"
            messages += [said(speaker, DECISIONS[part - 1]), said("assistant" if part % 2 else "user", "Good.")]
        messages += work(part)
        whole = compact(messages, window=200_000).report.tokens_before
        messages = compact(messages, target_tokens=whole // 10).messages
    text = "\n".join(str(message["content"]) for message in messages)
    assert [rule for rule in RULES if rule not in text] == []
    assert [decision for decision in DECISIONS if decision not in text] == []
