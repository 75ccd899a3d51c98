"""The OpenAI Agents SDK: a filter that keeps every model request inside the window, a session that stores the
conversation, and tools by which the agent reads what left its context."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from context_compactor.errors import BadSetting
from context_compactor.integrations.conversations import importing, own_messages
from context_compactor.sessions.session import Session

with importing("openai-agents", "openai-agents>=0.24"):
    from agents import FunctionTool, Handoff, RunContextWrapper, SessionSettings, Tool, TResponseInputItem, handoff
    from agents.models.fake_id import FAKE_RESPONSES_ID
    from agents.run import CallModelData, ModelInputData

_Run: TypeAlias = RunContextWrapper[Any] | None


class CompactorSession:
    """A conversation as runs store it, kept in a session of ours: pass it to `Runner.run(…, session=…)`.

    It gives all of the conversation to the next run, also in another program. `compactor_filter` decides what is sent.
    """

    session_settings: SessionSettings | None = None

    def __init__(self, session: Session) -> None:
        self.session = _opened(session)
        self.session_id = self._branch = self.session.id
        self._items, self._requests = self.session.history(), 0

    async def get_items(self, limit: int | None = None, *, wrapper: _Run = None) -> list[TResponseInputItem]:
        """All items in their order, or the last ones."""
        self._items, self._branch = await asyncio.to_thread(self.session.history), self.session.id
        self._new_usage(wrapper)
        return [_with_id(item) for item in self._items[0 if limit is None else max(0, len(self._items) - limit) :]]

    async def add_items(self, items: list[TResponseInputItem], *, wrapper: _Run = None) -> None:
        """Add items at the end. What the filter has stored already is not stored twice."""
        every = [*self._items, *_without_ids(items)]
        if every and every[0].get("role") in ("system", "developer"):
            raise BadSetting("a stored conversation cannot begin with instructions. Try: Agent(instructions=…).")
        synced = await asyncio.to_thread(self.session.sync, every, usage=self._new_usage(wrapper))
        self._items, self._branch = every, synced.session_id

    async def pop_item(self, *, wrapper: _Run = None) -> TResponseInputItem | None:
        """Take off the last item: the conversation goes on in a branch without it."""
        return await self._go_back(-1, wrapper)

    async def clear_session(self, *, wrapper: _Run = None) -> None:
        """Begin anew, in an empty branch. What was said stays in the store: `Session.delete` deletes it."""
        await self._go_back(0, wrapper)

    async def _go_back(self, end: int, wrapper: _Run) -> TResponseInputItem | None:
        items = await self.get_items(wrapper=wrapper)
        if not items:
            return None
        await asyncio.to_thread(self.session.truncate, len(items[:end]))
        self._items, self._branch = self._items[:end], self.session.id
        return items[-1]

    def _new_usage(self, wrapper: _Run) -> dict[str, Any] | None:
        """What was reported for the one request since the last call; None if an agent that is a tool made some too."""
        entries = wrapper.usage.request_usage_entries if wrapper else []
        new, self._requests = entries[self._requests :], len(entries)
        # The filter is in another branch when a handoff has changed the history: its usage is not that of this one.
        return vars(new[0]) if len(new) == 1 and self.session.id == self._branch else None


def compactor_filter(session: Session | CompactorSession) -> Callable[[CallModelData[Any]], Awaitable[ModelInputData]]:
    """What fits each request of one conversation into the window: pass it to `RunConfig(call_model_input_filter=…)`.

    The agent's instructions, tools and handoffs are counted.
    """
    opened = _opened(session)

    async def fit(call: CallModelData[Any]) -> ModelInputData:
        items, system, tools = call.model_data.input, call.model_data.instructions, await _declared_tools(call)
        sent = await asyncio.to_thread(opened.sync, _without_ids(items), tools=tools, system=system or "")
        return ModelInputData(input=own_messages(items, sent, _with_id), instructions=system)

    return fit


def recall_tools(session: Session | CompactorSession) -> list[Tool]:
    """`recall`, `search_archive` and `facts` for `Agent(tools=[…])`: they give back what left the agent's context."""
    opened = _opened(session)

    def tool(name: str, description: str, parameters: dict[str, Any], **_: Any) -> FunctionTool:
        async def answer(_: object, arguments: str) -> str:
            return await asyncio.to_thread(opened.call, name, arguments)

        return FunctionTool(name, description, parameters, answer, strict_json_schema=False)

    return [tool(**declared) for declared in opened.tools("responses")]


async def _declared_tools(call: CallModelData[Any]) -> list[dict[str, Any]]:
    tools = await call.agent.get_all_tools(RunContextWrapper(call.context))
    found = [(tool.name, tool.description, tool.params_json_schema) for tool in tools if isinstance(tool, FunctionTool)]
    handoffs = [each if isinstance(each, Handoff) else handoff(each) for each in call.agent.handoffs]
    found += [(each.tool_name, each.tool_description, each.input_json_schema) for each in handoffs]
    return [{"type": "function", "name": name, "description": text, "parameters": given} for name, text, given in found]


# The SDK gives the same id to all items that come from chat completions, by which equal answers would count as one. But
# it needs an id in an assistant's message to make a chat message of it.
def _without_ids(items: Sequence[Any]) -> list[Any]:
    return [{key: item[key] for key in item if key != "id" or item[key] != FAKE_RESPONSES_ID} for item in items]


def _with_id(item: Any) -> Any:
    is_answer = item.get("role") == "assistant" and isinstance(item.get("content"), list)
    return {"id": FAKE_RESPONSES_ID, **item} if is_answer or item.get("type") == "reasoning" else item


def _opened(session: object) -> Session:
    found = session.session if isinstance(session, CompactorSession) else session
    if not isinstance(found, Session):
        raise BadSetting(f"session: expected a Session of context_compactor, got {type(found).__name__}")
    return found
