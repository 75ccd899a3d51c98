"""Which frameworks are tested: those of the environment, and in `make frameworks` all that it should have."""

from __future__ import annotations

import os
from importlib.util import find_spec

_MODULES = {
    "test_adk.py": "google.adk",
    "test_agno.py": "agno",
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_langchain.py": "langchain",
    "test_litellm.py": "litellm_proxy_extras",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# `make frameworks` sets ALL_FRAMEWORKS: there a missing framework is an error, not a reason to leave tests out.
collect_ignore = [
    name for name, module in _MODULES.items() if "ALL_FRAMEWORKS" not in os.environ and not _is_installed(module)
]
