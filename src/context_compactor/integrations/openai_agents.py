"""The OpenAI Agents SDK: a filter that keeps every model request inside the window, a session that stores the
conversation, and the tools by which an agent reads what left its context."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import importing
from context_compactor.sessions.session import Session

with importing("openai-agents", "openai-agents>=0.24"):
    from agents import FunctionTool, Handoff, RunContextWrapper, SessionSettings, Tool, TResponseInputItem, handoff
    from agents.run import CallModelData, ModelInputData


class CompactorSession:
    """A conversation as the SDK's runs store it, in a session of ours: pass it to `Runner.run(…, session=…)`.

    It gives back all that was said, also to another program. What is sent of it is the filter's business.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, session: Session) -> None:
        self.session = _opened(session)
        self.session_id = self.session.id
        self._items: list[Any] | None = None
        self._branch = ""
        self._reports = 0

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """All items, or the last ones, in their order."""
        self._items, self._branch = await asyncio.to_thread(self.session.history), self.session.id
        self._new_usage(wrapper)
        return self._items[0 if limit is None else max(0, len(self._items) - limit) :]

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add items at the end. Those that the filter has stored already are not stored twice."""
        if self._items is None:
            await self.get_items()
        self._items = [*(self._items or ()), *items]
        # The request was about another history when a handoff has changed it: its usage says nothing about this one.
        usage = self._new_usage(wrapper) if self.session.id == self._branch else None
        synced = await asyncio.to_thread(self.session.sync, self._items, usage=usage)
        self._branch = synced.session_id

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Take the last item off: the conversation goes on in a branch without it."""
        items = await self.get_items(wrapper=wrapper)
        if items:
            await self._go_back(len(items) - 1)
        return items[-1] if items else None

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Begin anew, in a branch. Nothing is deleted: `Session.delete` does that."""
        if await self.get_items(wrapper=wrapper):
            await self._go_back(0)

    async def _go_back(self, count: int) -> None:
        await asyncio.to_thread(self.session.truncate, count)
        self._items, self._branch = (self._items or [])[:count], self.session.id

    def _new_usage(self, wrapper: RunContextWrapper[Any] | None) -> dict[str, int] | None:
        """What the provider reported for the one request since the last call; None when agents that are tools have
        made requests as well."""
        entries = wrapper.usage.request_usage_entries if wrapper else []
        new = [entry for entry in entries[self._reports :] if entry.input_tokens]
        self._reports = len(entries)
        return {"input_tokens": new[0].input_tokens, "output_tokens": new[0].output_tokens} if len(new) == 1 else None


def compactor_filter(session: Session | CompactorSession) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """What fits each model request of a run into the window: `RunConfig(call_model_input_filter=…)`.

    It is for one conversation. The agent's instructions, tools and handoffs are counted.
    """
    opened = _opened(session)

    async def fit(call: CallModelData[Any]) -> ModelInputData:
        items, instructions = call.model_data.input, call.model_data.instructions
        tools = await _declared_tools(call)
        sent = await asyncio.to_thread(opened.sync, items, tools=tools, system=instructions or "")
        own = [made if at is None else items[at] for made, at in zip(sent, sent.sources, strict=True)]
        return ModelInputData(input=own, instructions=instructions)

    return fit


def recall_tools(session: Session | CompactorSession) -> list[Tool]:
    """`recall`, `search_archive` and `facts` for `Agent(tools=[…])`: the agent gets back what left its context."""
    opened = _opened(session)

    async def answer(name: str, _: object, arguments: str) -> str:
        return await asyncio.to_thread(opened.call, name, arguments)

    return [
        FunctionTool(
            name=tool["name"],
            description=tool["description"],
            params_json_schema=tool["parameters"],
            on_invoke_tool=partial(answer, tool["name"]),
            strict_json_schema=False,
        )
        for tool in opened.tools("responses")
    ]


async def _declared_tools(call: CallModelData[Any]) -> list[dict[str, Any]]:
    tools = await call.agent.get_all_tools(RunContextWrapper(call.context))
    others = [each if isinstance(each, Handoff) else handoff(each) for each in call.agent.handoffs]
    named = [(tool.name, tool.description, tool.params_json_schema) for tool in tools if isinstance(tool, FunctionTool)]
    named += [(other.tool_name, other.tool_description, other.input_json_schema) for other in others]
    return [
        {"type": "function", "name": name, "description": text, "parameters": schema} for name, text, schema in named
    ]


def _opened(session: object) -> Session:
    found = session.session if isinstance(session, CompactorSession) else session
    if not isinstance(found, Session):
        raise BadSetting(
            f"session: expected a context_compactor.Session, got {type(found).__name__}. Try: Session.open(id, window=…)."
        )
    return found
