"""The tools take what the verbs of the HTTP API take, under the same names."""

from __future__ import annotations

import inspect

import pytest
from msgspec import structs

from context_compactor.mcp.tools import TOOLS
from context_compactor.sessions.verbs import Verbs

# A tool's own: whose session it is, which page of the answer, and the id that is a part of the path over HTTP.
OWN = {"session", "page", "id"}
OF_VERBS = [tool for tool in TOOLS if tool.verb]


@pytest.mark.parametrize("tool", OF_VERBS, ids=lambda tool: tool.name)
def test_a_tool_takes_no_argument_that_its_verb_does_not_know(tool):
    known = inspect.signature(getattr(Verbs, tool.verb).arguments).parameters
    assert {field.name for field in structs.fields(tool.input)} - OWN <= known.keys()


def test_only_what_http_has_no_verb_for_is_without_one():
    assert [tool.name for tool in TOOLS if not tool.verb] == ["list_turns"]


def test_a_tool_that_writes_is_a_verb_that_writes():
    assert all(getattr(Verbs, tool.verb).writes for tool in OF_VERBS if tool.writes)
