"""An agent with OpenAI's Responses, for as long as it runs: `python examples/openai_responses_loop.py "your task"`."""

import json
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI

from context_compactor import Session

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "read_file",
        "description": "Read a file of this project.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "strict": False,
    }
]


def read_file(path: str) -> str:
    """A tool of the agent."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def run(task: str, session: Session, client: OpenAI, model: str = "gpt-5") -> str:
    """Work on a task until the model answers without a call. The conversation is ours, so nothing is stored there."""
    tools = [*TOOLS, *session.tools("responses")]  # its own, and recall, search_archive and facts
    session.set_prompt(tools=tools)
    session.append({"role": "user", "content": task})
    while True:
        response = client.responses.create(
            model=model,
            input=session.context(),
            tools=tools,
            store=False,
            include=["reasoning.encrypted_content"],
        )
        session.append(response, usage=response.usage)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            output = answer(session, call.name, call.arguments)
            session.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


def answer(session: Session, name: str, arguments: str) -> str:
    """The result of a call."""
    return read_file(**json.loads(arguments)) if name == "read_file" else session.call(name, arguments)


if __name__ == "__main__":
    with Session.open("openai-responses-loop", model="gpt-5") as opened:
        print(run(sys.argv[1], opened, OpenAI()))
