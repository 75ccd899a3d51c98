"""An agent with OpenAI chat completions, for as long as it runs: `python examples/openai_chat_loop.py "your task"`."""

import json
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI

from context_compactor import Session

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file of this project.",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        },
    }
]


def read_file(path: str) -> str:
    """A tool of the agent."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def run(task: str, session: Session, client: OpenAI, model: str = "gpt-5") -> str:
    """Work on a task until the model answers without a call."""
    tools = [*TOOLS, *session.tools("openai")]  # its own, and recall, search_archive and facts
    session.set_prompt(tools=tools)
    session.append({"role": "user", "content": task})
    while True:
        response = client.chat.completions.create(model=model, messages=session.context(), tools=tools)
        session.append(response, usage=response.usage)
        reply = response.choices[0].message
        if not reply.tool_calls:
            return reply.content or ""
        for call in reply.tool_calls:
            if call.type == "function":
                content = answer(session, call.function.name, call.function.arguments)
                session.append({"role": "tool", "tool_call_id": call.id, "content": content})


def answer(session: Session, name: str, arguments: str) -> str:
    """The result of a call."""
    return read_file(**json.loads(arguments)) if name == "read_file" else session.call(name, arguments)


if __name__ == "__main__":
    with Session.open("openai-chat-loop", model="gpt-5") as opened:
        print(run(sys.argv[1], opened, OpenAI()))
