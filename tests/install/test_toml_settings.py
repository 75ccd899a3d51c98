"""Our table in TOML settings: everything else keeps every byte, whatever the agent has written around it."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.agents.coding_agents import CODEX
from context_compactor.agents.install.settings_files import UNKNOWN, TomlSettings
from context_compactor.agents.install.targets import mcp_server
from context_compactor.agents.install.text_edits import BadSettingsText, statements
from context_compactor.agents.steering import steering_request

OURS = TomlSettings(
    mcp_server(CODEX, ('/opt/odd "place"/compactor',)), ("/h/hooks.json:stop:0:0", "/h/hooks.json:stop:1:0")
)
ELSEWHERE = TomlSettings(mcp_server(CODEX, ("/new/compactor",)))
TRUST = '[hooks.state]\n\n[hooks.state."/h/hooks.json:stop:0:0"]\ntrusted_hash = "sha256:00"\n'

_heads = [
    "model = 'x' # why\n",
    'text = """\n[mcp_servers.compactor]\n\\""" not yet\n"""\n',
    "literal = '''\n[a]\n'' '''\n",
    "number = nan\nday = 2024-02-29T10:00:00Z\n",
    'list = [ # first\n  "]", # a # b\n  [1, 2],\n]\n',
    'a."b.c" . d = { e = "}", f = [1] }\n',
    "\n",
    "# [mcp_servers.compactor]\n",
]
_tables = [
    "[tui]\nx = 1\n",
    "  [ projects . \"/home/a]b\" ]  # mine\n  trust_level = 'trusted'\n",
    "[[profiles]]\nname = 'a'\n[[profiles]]\nname = 'b'\n",
    "[mcp_servers.other]\ncommand = 'x'\nargs = [\n  'y',\n]\n",
    "[mcp_servers.compactor2]\ncommand = 'z'\n",
    "\n\n# a comment that stands alone\n\n",
    "[empty]\n",
]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A config.toml as people have it, without us."""
    parts = draw(st.lists(st.sampled_from(_heads), unique=True)) + draw(st.lists(st.sampled_from(_tables), unique=True))
    text = "".join(parts)
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text.removesuffix("\n").removesuffix("\r") if draw(st.booleans()) else text


def installed(text: str, ours: TomlSettings = OURS) -> str:
    ours.check(text)
    return ours.with_ours(text, ours.shape_of(text))


@given(texts())
def test_what_was_installed_can_be_taken_out_to_the_last_byte(text):
    after = installed(text)
    assert after.startswith(text)
    assert OURS.without_ours(after, OURS.shape_of(text)) == text


@given(texts())
def test_an_install_means_one_server_more_and_nothing_else(text):
    before, after = (tomllib.loads(each, parse_float=str) for each in (text, installed(text)))
    assert after["mcp_servers"].pop("compactor") == OURS.server
    assert after == {**before, "mcp_servers": before.get("mcp_servers", {})}


@given(texts())
def test_a_second_install_changes_nothing_and_one_from_elsewhere_changes_the_path_alone(text):
    once = installed(text)
    assert installed(once) == once
    again = installed(once, ELSEWHERE)
    assert again == once.replace('/opt/odd \\"place\\"/compactor', "/new/compactor")


STEERED = TomlSettings(OURS.server, OURS.trusted, steering_request((), 6_000))
OWN = ["compact_prompt = 'Mine.'\n", "experimental_compact_prompt_file = '/mine.md'\n"]


@given(texts())
def test_the_request_for_summaries_stands_above_all_tables_and_goes_again_to_the_last_byte(text):
    after = installed(text, STEERED)
    assert tomllib.loads(after)["compact_prompt"] == STEERED.prompt + "\n"
    assert "request for summaries" in STEERED.registered(after)
    assert installed(after, STEERED) == after
    assert STEERED.without_ours(after, STEERED.shape_of(text)) == text
    assert OURS.without_ours(after, OURS.shape_of(text)) == text


@given(texts())
def test_an_install_that_is_not_to_steer_takes_the_request_out_and_another_size_changes_it(text):
    steered = installed(text, STEERED)
    assert installed(steered) == installed(text)
    smaller = TomlSettings(OURS.server, OURS.trusted, steering_request((), 4_000))
    assert installed(steered, smaller) == installed(text, smaller)


@given(st.sampled_from(OWN), texts())
def test_a_request_of_the_users_own_is_never_overwritten(own, text):
    mine = own + text
    assert installed(mine, STEERED) == installed(mine)
    assert "request for summaries" not in STEERED.registered(installed(mine, STEERED))


@given(texts(), texts())
def test_what_the_agent_writes_behind_our_table_stays_as_it_is(text, more):
    behind = "\n" + "".join(each + "\n" for each in more.splitlines() if each.startswith("# "))
    later = installed(text) + behind + '[later]\nx = """\n[mcp_servers.compactor]\n"""\n'
    kept = OURS.without_ours(later, OURS.shape_of(text))
    assert kept.endswith(behind + '[later]\nx = """\n[mcp_servers.compactor]\n"""\n')
    assert kept.startswith(text)
    assert len(kept) <= len(text) + len(later) - len(installed(text)) + 2
    assert "compactor" not in tomllib.loads(kept).get("mcp_servers", {})


@given(texts())
def test_reviews_of_our_hooks_go_with_them_and_those_of_others_stay(text):
    theirs = '\n[hooks.state."/h/hooks.json:stop:2:0"]\ntrusted_hash = "sha256:11"\n'
    with_both = installed(text) + "\n" + TRUST + theirs
    after = tomllib.loads(OURS.without_ours(with_both, OURS.shape_of(text)))
    assert after["hooks"]["state"] == {"/h/hooks.json:stop:2:0": {"trusted_hash": "sha256:11"}}


@given(texts())
def test_a_file_in_which_the_agent_noted_its_reviews_becomes_what_it_was(text):
    reviewed = installed(text) + "\n" + TRUST
    assert OURS.without_ours(reviewed, OURS.shape_of(text)) == text


def test_tables_below_ours_go_with_it_and_a_comment_behind_it_stays():
    ours = "[mcp_servers.compactor]\ncommand = '/x/compactor'\nargs = ['mcp']\n"
    below = "\n[mcp_servers.compactor.tools.recall]\napproval_mode = 'approve'\n"
    text = f"a = 1\n\n{ours}{below}# behind\n[z]\n"
    assert OURS.without_ours(text, UNKNOWN) == "a = 1\n# behind\n[z]\n"


def test_a_server_written_as_dotted_keys_between_others_is_found():
    text = "[mcp_servers]\ncompactor.command = 'compactor'\nx.command = 'y'\ncompactor.args = ['mcp']\n"
    assert OURS.without_ours(text, UNKNOWN) == "[mcp_servers]\nx.command = 'y'\n"


def test_without_a_ledger_our_table_and_its_free_line_go():
    assert OURS.without_ours(installed("a = 1\n"), UNKNOWN) == "a = 1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\nb = \n", "line 2: this is not TOML"),
        ("a = 1\na = 2\n", "this is not TOML"),
        ("\nmcp_servers = 3\n", "line 2: 'mcp_servers' is not a table"),
        ("\nmcp_servers = { x = { command = 'y' } }\n", "line 2: a table cannot be added"),
        ("a = 1\n[mcp_servers.compactor]\ncommand = 'tea'\n", "line 2: another MCP server"),
        (
            "mcp_servers = { compactor = { command = '/o/compactor', args = ['mcp'] } }\n",
            "cannot be updated automatically",
        ),
    ],
)
def test_settings_that_cannot_be_changed_safely_are_refused_with_the_line(text, said):
    with pytest.raises(BadSettingsText, match="Try: ") as refused:
        installed(text)
    assert said in str(refused.value)


def test_a_server_that_cannot_be_taken_out_by_itself_is_not_left_in_silence():
    with pytest.raises(BadSettingsText, match="by hand"):
        OURS.without_ours("mcp_servers = { compactor = { command = 'compactor', args = ['mcp'] } }\n", UNKNOWN)


@given(texts())
def test_every_key_is_found_with_its_whole_path(text):
    found = {each.keys for each in statements(text) if not each.is_head}
    assert {keys[0] for keys in found} <= set(tomllib.loads(text))
    for each in statements(text):
        assert text[each.start] not in " \t\r\n#"
        assert each.end == len(text) or text[each.end - 1] == "\n"
