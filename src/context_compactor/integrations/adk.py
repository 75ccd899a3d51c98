"""Google's Agent Development Kit: a plugin that keeps every agent of an app inside its context window.

app = App(name="work", root_agent=agent, plugins=[CompactorPlugin(window=200_000)])
"""

from __future__ import annotations

import asyncio
from typing import Any

from context_compactor.integrations.conversations import Conversations, importing, own_messages
from context_compactor.sessions.session import Session

with importing("adk", "google-adk>=2.9"):
    from google.adk.agents.context import Context
    from google.adk.models.llm_request import LlmRequest
    from google.adk.plugins.base_plugin import BasePlugin
    from google.adk.tools.base_tool import BaseTool
    from google.genai import types

# How ADK begins an agent's `instruction` beside a `static_instruction`. It stands at the end of each request anew, so
# it is no part of the history.
_INSTRUCTION = "The text between <<<BEGIN_SYSTEM_INSTRUCTION>>> and "


class CompactorPlugin(BasePlugin):
    """Keeps all agents of an app inside the window, and gives them the tools `recall`, `search_archive` and `facts`.

    Give it to the app: `App(plugins=[CompactorPlugin(window=200_000)])`. Options are those of `Session.open`. `session`
    is for an app with one conversation; otherwise each agent of each ADK session has one under the id
    `app/user/session/agent`. The events of the ADK session stay as they are.
    """

    def __init__(self, session: Session | str | None = None, **options: Any) -> None:
        super().__init__("context_compactor")
        self.conversations = Conversations(session, **options)

    def session(self, context: Context) -> Session:
        """The session of the agent that a callback or a tool is called for."""
        names = [context.session.app_name, context.session.user_id, context.session.id, *_speaker(context)]
        parts = [name.replace("%", "%25").replace("/", "%2F") for name in names if name]
        return self.conversations.session("/".join(parts))

    async def before_model_callback(self, *, callback_context: Context, llm_request: LlmRequest) -> None:
        """Replace the contents of the request by what fits."""
        if not llm_request.previous_interaction_id:  # otherwise the provider keeps the history
            await asyncio.to_thread(self._compact, callback_context, llm_request)

    async def close(self) -> None:
        """Close the sessions; the runner calls it."""
        await asyncio.to_thread(self.conversations.close)

    def _compact(self, context: Context, request: LlmRequest) -> None:
        session, config = self.session(context), request.config
        if _takes_functions(config):
            (declared,) = session.tools("gemini")
            request.append_tools([_ArchiveTool(self, each) for each in declared["functionDeclarations"]])
        moving = [content for content in request.contents if _is_instruction(content)]
        history = [content for content in request.contents if not _is_instruction(content)]
        behind = next((at for at, content in enumerate(reversed(request.contents)) if _is_instruction(content)), 0)
        sent = session.sync(history, _last_usage(context), config.tools, [config.system_instruction or "", *moving])
        kept = own_messages(history, sent, types.Content.model_validate)
        at = max(0, len(kept) - behind)
        request.contents = [*kept[:at], *moving, *kept[at:]]


class _ArchiveTool(BaseTool):
    def __init__(self, plugin: CompactorPlugin, function: dict[str, Any]) -> None:
        super().__init__(name=function["name"], description=function["description"])
        self._plugin, self._function = plugin, function

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration.model_validate(self._function)

    async def run_async(self, *, args: dict[str, Any], tool_context: Context) -> str:
        return await asyncio.to_thread(lambda: self._plugin.session(tool_context).call(self.name, args))


def _takes_functions(config: types.GenerateContentConfig) -> bool:
    """Whether functions may be added: many models refuse them beside tools of their own or a schema for the answer."""
    has_functions = any(getattr(tool, "function_declarations", None) for tool in config.tools or ())
    return has_functions or not (config.tools or config.response_schema or config.response_json_schema)


def _is_instruction(content: types.Content) -> bool:
    return content.role == "user" and any((part.text or "").startswith(_INSTRUCTION) for part in content.parts or ())


def _speaker(context: Context) -> tuple[str | None, ...]:
    """What the events of an agent have in common, which may run several times at once."""
    return context.agent_name, context.get_invocation_context().branch, context.isolation_scope


def _last_usage(context: Context) -> types.GenerateContentResponseUsageMetadata | None:
    replies = [event for event in context.session.events if event.content and event.content.role == "model"]
    by_own = [event for event in replies if (event.author, event.branch, event.isolation_scope) == _speaker(context)]
    return by_own[-1].usage_metadata if by_own else None
