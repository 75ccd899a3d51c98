"""LiteLLM: a callback that fits the messages of each call into the window, in the proxy and in the SDK."""

from __future__ import annotations

import asyncio
import json
import warnings
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from context_compactor.errors import BadInput, BadSetting
from context_compactor.integrations.conversations import Conversations, importing, own_messages
from context_compactor.sessions.session import Session
from context_compactor.sessions.sync import SyncedMessages

with importing("litellm", "litellm>=1.101"):
    from litellm.constants import SESSION_ID_GENERATED_METADATA_KEY
    from litellm.exceptions import BadRequestError
    from litellm.integrations.custom_prompt_management import CustomPromptManagement

_FIELDS = {"acompletion": "messages", "anthropic_messages": "messages", "aresponses": "input"}
_PROMPT_ID = "compactor"


class _Call:
    """A call that was fitted, with what was reported for its reply."""

    usage: Any = None


class CompactorHandler(CustomPromptManagement):
    """Keeps every conversation that goes through LiteLLM inside of its window.

    Options are those of `Session.open`, such as `window`, `model` and `store`. In the SDK, append the handler to
    `litellm.callbacks` and give `litellm_session_id` with each call; `litellm.completion` needs `prompt_id="compactor"`
    and `prompt_variables={"session_id": …, "tools": tools}` instead. In the proxy, name it under `callbacks` in the
    configuration. A call without the id of its conversation is left alone. `conversations.session(id)` is a session: in
    the SDK offer its `tools` to the model, and `call` them.
    """

    def __init__(self, **options: Any) -> None:
        if "session" in options:
            raise BadSetting("session: a handler has many conversations. Try: litellm_session_id with each call.")
        super().__init__()
        self.conversations = Conversations(**options)
        # The last call of each session, and the same by the ids of the calls.
        self._last_calls: WeakKeyDictionary[Session, _Call] = WeakKeyDictionary()
        self._calls: WeakValueDictionary[str, _Call] = WeakValueDictionary()
        self._in_proxy = False

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: Any, call_type: Any) -> Any:  # noqa: ARG002
        """LiteLLM calls it in the proxy. A conversation belongs to the key that is used: no other one shares it."""
        self._in_proxy, key = True, user_api_key_dict
        owner = sha256(json.dumps([key.api_key, key.user_id, key.team_id]).encode()).hexdigest()[:24]
        try:
            return await self._fit(data, call_type, f"{owner}-")
        except BadInput as error:
            raise BadRequestError(str(error), data.get("model"), llm_provider="") from error

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """LiteLLM calls it in asynchronous functions of the SDK; also for calls that it makes within another one."""
        if self._in_proxy or kwargs.get("proxy_server_request") or kwargs.get("litellm_call_id") in self._calls:
            return None
        if kwargs.get("prompt_id") == _PROMPT_ID:
            del kwargs["prompt_id"]
        return await self._fit(kwargs, getattr(call_type, "value", ""))

    def get_chat_completion_prompt(
        self, model: str, messages: list[Any], non_default_params: dict[str, Any], *_: Any, **kwargs: Any
    ) -> tuple[str, list[Any], dict[str, Any]]:
        """LiteLLM calls it in `completion` with a `prompt_id`, and gives it nothing else of the call."""
        variables = kwargs.get("prompt_variables") or {}
        if kwargs.get("prompt_id") == _PROMPT_ID and not self._in_proxy:
            if not variables.get("session_id"):
                raise BadSetting('prompt_id="compactor" needs prompt_variables={"session_id": …}')
            session = self.conversations.session(variables["session_id"])
            fitted = session.sync(messages, variables.get("usage"), variables.get("tools"))
            messages = own_messages(messages, fitted, dict)
        return model, messages, non_default_params

    def should_run_prompt_management(self, prompt_id: str | None, *_: Any, **__: Any) -> bool:
        """Whether a call asks for this handler by its `prompt_id`."""
        return prompt_id == _PROMPT_ID

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:  # noqa: ARG002
        """LiteLLM calls it behind a reply; what the provider counted is used with the next request."""
        if call := self._calls.get(kwargs.get("litellm_call_id")):
            call.usage = getattr(response_obj, "usage", None)

    async def _fit(self, data: dict[str, Any], call_type: str, owner: str = "") -> dict[str, Any] | None:
        field = _FIELDS.get(call_type, "")
        history, conversation = data.get(field), _conversation(data)
        is_kept_elsewhere = data.get("previous_response_id") or data.get("conversation")
        if not field or is_kept_elsewhere or isinstance(history, (str, SyncedMessages)):
            return None
        if not conversation or not isinstance(history, list) or not history:
            # Shown once: Python leaves out what was warned of in the same place.
            warnings.warn("a call was left alone. Try: litellm_session_id, and messages by keyword.", stacklevel=2)
            return None
        session = await asyncio.to_thread(self.conversations.session, owner + conversation)
        usage = getattr(self._last_calls.get(session), "usage", None)
        system = data.get("system") or data.get("instructions")
        fitted = await asyncio.to_thread(session.sync, history, usage, data.get("tools"), system)
        self._last_calls[session] = self._calls[str(data.get("litellm_call_id"))] = _Call()
        # By their type they are known as fitted in a fallback.
        data[field] = SyncedMessages(own_messages(history, fitted, dict))
        return data


def _conversation(data: dict[str, Any]) -> str | None:
    """The id that the caller gave; one that the proxy made up for a single request is none."""
    places = [data.get(name) for name in ("metadata", "litellm_metadata", "prompt_variables")]
    given = [{"session_id": data.get("litellm_session_id")}, *(each for each in places if isinstance(each, dict))]
    is_made_up = any(each.get(SESSION_ID_GENERATED_METADATA_KEY) for each in given)
    return None if is_made_up else next((str(each["session_id"]) for each in given if each.get("session_id")), None)
