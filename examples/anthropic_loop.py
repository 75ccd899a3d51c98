"""An agent with Anthropic's messages, for as long as it runs: `python examples/anthropic_loop.py "your task"`."""

import sys
from pathlib import Path
from typing import Any

from anthropic import Anthropic

from context_compactor import Session

TOOLS: list[Any] = [
    {
        "name": "read_file",
        "description": "Read a file of this project.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
]


def read_file(path: str) -> str:
    """A tool of the agent."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def run(task: str, session: Session, client: Anthropic, model: str = "claude-opus-5-5") -> str:
    """Work on a task until the model answers without a call."""
    tools = [*TOOLS, *session.tools("anthropic")]  # its own, and recall, search_archive and facts
    session.set_prompt(tools=tools)
    session.append({"role": "user", "content": task})
    while True:
        response = client.messages.create(model=model, max_tokens=8_192, messages=session.context(), tools=tools)
        session.append(response, usage=response.usage)
        calls = [block for block in response.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in response.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": answer(session, call.name, call.input)}
            for call in calls
        ]
        session.append({"role": "user", "content": results})


def answer(session: Session, name: str, arguments: Any) -> str:
    """The result of a call."""
    return read_file(**arguments) if name == "read_file" else session.call(name, arguments)


if __name__ == "__main__":
    with Session.open("anthropic-loop", model="claude-opus-5-5") as opened:
        print(run(sys.argv[1], opened, Anthropic()))
