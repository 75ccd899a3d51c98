"""Settings files as people and editors leave them: any white space, others' entries, any nesting."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from context_compactor.agents.coding_agents import CLAUDE_CODE
from context_compactor.agents.install.settings_files import JsonSettings
from context_compactor.agents.install.targets import hook_groups, mcp_server, status_line

MARK = "MARK of the user"
COMMAND = ("/opt/with space/compactor",)
EVENTS = [hook.event for hook in CLAUDE_CODE.hooks]

OURS = JsonSettings(
    hooks=hook_groups(CLAUDE_CODE, COMMAND),
    server=mcp_server(CLAUDE_CODE, COMMAND),
    status_line=status_line(COMMAND),
)

_space = st.sampled_from(["", "", " ", "\n", "\t", "\r\n", "\r", "  \n\n\t", "\n    "])
_words = st.text(max_size=8) | st.sampled_from(["", "a/b", "\u2028", "🙂", '"', "\\", "{", "],", MARK])
_plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _words
_anything = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3), max_leaves=8
)
_hook = st.fixed_dictionaries({"type": st.just("command"), "command": st.sampled_from([MARK, "compactorx hook stop"])})
_group = st.fixed_dictionaries(
    {"hooks": st.lists(_hook | st.just(MARK), max_size=2)}, optional={"matcher": st.sampled_from(["*", "Bash"])}
)
_hooks = st.dictionaries(
    st.sampled_from([*EVENTS, "Notification"]), st.lists(_group | st.just({"odd": MARK}), max_size=2), max_size=4
)
_servers = st.dictionaries(st.sampled_from(["other", "Compactor"]), st.just({"command": "x"}), max_size=2)


@st.composite
def settings(draw: st.DrawFn) -> dict[str, Any]:
    """The value of a settings file in which others have entries, and we have none."""
    others = draw(st.dictionaries(_words.filter(lambda key: key not in ("hooks", "statusLine")), _anything, max_size=4))
    known = draw(
        st.fixed_dictionaries(
            {"mark": st.just(MARK)}, optional={"hooks": _hooks, "mcpServers": _servers, "statusLine": st.just({"x": 1})}
        )
        | st.just({})
    )
    entries = [*others.items(), *known.items()]
    return dict(draw(st.permutations(entries)))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Such a file as text: as an editor writes it, or with any white space that JSON allows."""
    value = draw(settings())
    style = draw(st.sampled_from(["two", "tab", "line", "dense", "odd", "odd"]))
    if style == "odd":
        return draw(_space) + _odd(draw, value) + draw(_space)
    indent, separators = {
        "two": (2, None),
        "tab": ("\t", None),
        "line": (None, None),
        "dense": (None, (",", ":")),
    }[style]
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=draw(st.booleans()))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return text.replace("\n", end) + draw(st.sampled_from(["", end]))


def _odd(draw: st.DrawFn, value: Any) -> str:
    if isinstance(value, dict):
        parts = [
            draw(_space)
            + json.dumps(key, ensure_ascii=draw(st.booleans()))
            + draw(_space)
            + ":"
            + draw(_space)
            + _odd(draw, part)
            + draw(_space)
            for key, part in value.items()
        ]
        return "{" + (",".join(parts) or draw(_space)) + "}"
    if isinstance(value, list):
        return "[" + (",".join(draw(_space) + _odd(draw, part) + draw(_space) for part in value) or draw(_space)) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))
