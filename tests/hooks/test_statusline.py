"""The status line, as Claude Code 2.1.197 asks for it: JSON on standard input, one line back, whatever comes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from context_compactor.agents.hook_state import open_hook_state
from context_compactor.agents.statusline import LEVELS, WindowLimits, main, read_tail, session_status
from context_compactor.cli.install import statusline
from context_compactor.settings import DEFAULT_LEVELS, Settings

COMMAND = [sys.executable, "-m", "context_compactor.agents.statusline"]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "CLAUDE_"))}
PLAIN |= {"NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
PLAIN.pop("COLUMNS", None)
ZEROS = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
    0,
)


def used(tokens: int) -> dict[str, int]:
    """A usage record that adds up to so many tokens."""
    return ZEROS | {"input_tokens": 10, "cache_read_input_tokens": tokens - 50, "output_tokens": 40}


def sent(folder: Path, usage: object, **more: object) -> dict[str, object]:
    """What Claude Code sends, with every field that it sent when it was recorded."""
    shown = (usage["input_tokens"] + usage["cache_read_input_tokens"]) if isinstance(usage, dict) else 0
    percent = round(100 * shown / 200_000) if isinstance(usage, dict) else None
    return {
        "session_id": "b8cca148-fc80-42e8-98e8-669f7a91bb70",
        "transcript_path": str(folder / "session.jsonl"),
        "cwd": str(folder),
        "prompt_id": "710c7050-2de7-4a67-a6fb-515b591cf42d",
        "session_name": "t",
        "model": {"id": "claude-haiku-4-5-20251001", "display_name": "Haiku 4.5"},
        "workspace": {"current_dir": str(folder), "project_dir": str(folder), "added_dirs": []},
        "version": "2.1.197",
        "output_style": {"name": "default"},
        "cost": {"total_cost_usd": 0.25, "total_duration_ms": 45976, "total_api_duration_ms": 460},
        "context_window": {
            "total_input_tokens": shown,
            "total_output_tokens": 40,
            "context_window_size": 200_000,
            "current_usage": usage,
            "used_percentage": percent,
            "remaining_percentage": None if percent is None else 100 - percent,
        },
        "exceeds_200k_tokens": False,
        "fast_mode": False,
        "thinking": {"enabled": True},
    } | more


def reply(tokens: int, name: str = "", **more: object) -> dict[str, object]:
    """A line of a transcript in which the model answers."""
    message = {"role": "assistant", "content": [{"type": "text", "text": "done"}], "usage": used(tokens)}
    return {"type": "assistant", "isSidechain": False, "message": message | ({"id": name} if name else {})} | more


def boundary(seconds_ago: float, tokens: int = 161_000) -> dict[str, object]:
    """The line of a transcript that says that the agent compacted."""
    at = datetime.fromtimestamp(time.time() - seconds_ago, UTC).isoformat(timespec="milliseconds")
    facts = {"trigger": "manual", "preTokens": tokens, "durationMs": 157, "postTokens": 860}
    stamp = at.replace("+00:00", "Z")
    return {"type": "system", "subtype": "compact_boundary", "timestamp": stamp, "compactMetadata": facts}


def write(folder: Path, *lines: object) -> None:
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "session.jsonl").write_text(text, encoding="utf-8")


def run(call: object, **env: str) -> str:
    """The line that the real command prints, without its newline."""
    given = call if isinstance(call, bytes) else json.dumps(call).encode()
    ran = subprocess.run(COMMAND, input=given, capture_output=True, check=False, env=PLAIN | env)
    assert (ran.returncode, ran.stderr) == (0, b"")
    line, newline, rest = ran.stdout.decode(env.get("PYTHONIOENCODING", "utf-8")).partition("\n")
    assert (newline, rest) == ("\n", "")
    assert line.strip()
    return line


# What is said


def test_a_compaction_that_was_taken_back_is_said_to_be_undone(tmp_path):
    write(tmp_path, boundary(14 * 60 + 5), *(reply(170_000 + 10 * step) for step in range(3)))
    assert "undone 14 min ago, 161k → 170k" in run(sent(tmp_path, used(171_000)))


def test_one_line_has_gauge_percent_tokens_forecast_and_last_compaction(tmp_path):
    write(tmp_path, boundary(14 * 60 + 5), *(reply(39_000 + 3_000 * step) for step in range(29)))
    line = run(sent(tmp_path, used(124_000)))
    assert line == "▓▓▓▓▓▓░░░░ 62% · 124k of 200k tokens · compacts in ~9 turns · compacted 14 min ago, 161k → 39k"


@pytest.mark.parametrize(
    ("kept_for", "minutes", "is_free"),
    [("5m", 4, False), ("5m", 7, True), ("1h", 7, False), ("1h", 75, True), ("", 7, False), ("", 75, True)],
)
def test_after_a_pause_in_which_the_provider_has_forgotten_it_a_compaction_is_said_to_be_free(
    tmp_path, kept_for, minutes, is_free
):
    at = datetime(2026, 11, 18, tzinfo=UTC)
    line = reply(124_000, timestamp=at.isoformat())
    line["message"]["usage"] |= {"cache_creation": {f"ephemeral_{kept_for}_input_tokens": 9}} if kept_for else {}
    write(tmp_path, line)
    status = session_status(sent(tmp_path, used(124_000)), PLAIN, at.timestamp() + 60 * minutes)
    assert (status.forecast == f"idle {minutes} min: /compact costs nothing extra now") == is_free
    small = session_status(sent(tmp_path, used(20_000)), PLAIN, at.timestamp() + 60 * minutes)
    assert "nothing extra" not in small.forecast


def test_own_windows_and_cache_lives_of_a_model_are_used(tmp_path):
    at = datetime(2026, 11, 18, tzinfo=UTC)
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "config.toml").write_text('[models."claude-*"]\nwindow = 150_000\ncache_minutes = 2\n')
    write(tmp_path, reply(124_000, timestamp=at.isoformat()))
    status = session_status(sent(tmp_path, used(124_000)), PLAIN, at.timestamp() + 180)
    assert status.used == "124k of 150k tokens"
    assert "nothing extra" in status.forecast


@pytest.mark.parametrize(
    ("tokens", "head", "forecast"),
    [
        (5_000, "▓░░░░░░░░░ 2% · 5k of 200k tokens", "compacts in ~148k tokens"),
        (153_000, "▓▓▓▓▓▓▓▓░░ 76% · 153k of 200k tokens", "compacts in ~446 tokens"),
        (154_000, "▓▓▓▓▓▓▓▓░░ 77% · 154k of 200k tokens", "compacts soon"),
        (164_000, "▓▓▓▓▓▓▓▓░░ 82% · 164k of 200k tokens", "compacts soon"),
        (183_000, "▓▓▓▓▓▓▓▓▓░ 92% · 183k of 200k tokens", "almost full: run /compact"),
        (199_000, "▓▓▓▓▓▓▓▓▓▓ 100% · 199k of 200k tokens", "full: run /compact"),
        (230_000, "▓▓▓▓▓▓▓▓▓▓ 115% · 230k of 200k tokens", "full: run /compact"),
    ],
)
def test_what_comes_next_is_said_in_the_words_of_whoever_looks(tmp_path, tokens, head, forecast):
    assert run(sent(tmp_path, used(tokens))) == f"{head} · {forecast}"


def test_a_compaction_that_the_next_turn_brings_is_named_as_such(tmp_path):
    write(tmp_path, *(reply(tokens) for tokens in (120_000, 130_000, 140_000, 150_000)))
    assert run(sent(tmp_path, used(150_000))).endswith(" · compacts with the next turn")


def test_a_growth_of_nearly_nothing_is_no_number_of_turns_to_remember(tmp_path):
    write(tmp_path, *(reply(20_000 + step) for step in range(9)))
    assert run(sent(tmp_path, used(20_010))).endswith(" · compacts in over 999 turns")


def test_levels_and_budget_are_those_of_the_settings():
    assert tuple((rule.level.value, rule.threshold) for rule in DEFAULT_LEVELS) == LEVELS
    for window in (1_000, 8_192, 65_536, 200_000, 1_000_000):
        assert WindowLimits().budget(window) == window - Settings().output_reserve(window)


# Before an answer, and after a compaction


def test_before_the_first_answer_it_says_that_it_waits(tmp_path):
    assert run(sent(tmp_path, None)) == "░░░░░░░░░░ waiting for the first answer"


@pytest.mark.parametrize("usage", [None, ZEROS], ids=["null", "zeros, as 2.1.197 sends them"])
def test_after_a_compaction_it_says_so_instead_of_zero_percent(tmp_path, usage):
    write(tmp_path, reply(155_000), reply(160_000), boundary(2), {"type": "user", "isCompactSummary": True})
    assert run(sent(tmp_path, usage)) == "░░░░░░░░░░ compacted just now, from 161k · waiting for the next answer"


def test_zeros_with_a_transcript_that_lags_behind_do_not_show_the_tokens_from_before(tmp_path):
    write(tmp_path, boundary(3_000), reply(150_000), reply(160_000))
    assert run(sent(tmp_path, ZEROS)) == "░░░░░░░░░░ waiting for the next answer"


def test_fields_that_are_null_are_taken_from_the_transcript(tmp_path):
    write(tmp_path, reply(50_000), reply(60_000), {"type": "user", "message": {"content": "go on"}})
    assert run(sent(tmp_path, None)) == "▓▓▓░░░░░░░ 30% · 60k of 200k tokens · compacts in ~93k tokens"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(30, "just now"), (-500, "just now"), (7_100, "118 min ago"), (7_300, "2 h ago"), (259_300, "3 days ago")],
)
def test_how_long_ago_a_compaction_was_is_said_in_words(tmp_path, seconds, said):
    write(tmp_path, boundary(seconds), reply(30_000))
    assert run(sent(tmp_path, used(30_000))).endswith(f"compacted {said}, 161k → 30k")


# The transcript


def test_sub_agents_and_answers_written_by_the_client_are_not_counted(tmp_path):
    by_client = reply(5_000) | {"message": reply(5_000)["message"] | {"model": "<synthetic>"}}
    write(tmp_path, reply(60_000), reply(9_000, isSidechain=True), by_client, reply(7, isApiErrorMessage=True))
    assert read_tail(str(tmp_path / "session.jsonl")).totals == [60_000]


def test_lines_of_one_reply_are_one_turn_of_the_forecast(tmp_path):
    write(tmp_path, *(reply(10_000 + 1_000 * (step // 3), f"msg_{step // 3}") for step in range(30)))
    tail = read_tail(str(tmp_path / "session.jsonl"))
    assert tail.totals == list(range(19_000, 9_000, -1_000))
    assert tail.growth == 1_000


def test_growth_is_not_told_from_fewer_than_three_turns_nor_across_a_compaction(tmp_path):
    write(tmp_path, *(reply(tokens) for tokens in (100_000, 120_000, 150_000)), boundary(60), reply(30_000))
    tail = read_tail(str(tmp_path / "session.jsonl"))
    assert (tail.totals, tail.growth) == ([30_000], None)


def test_a_conversation_that_speaks_of_a_boundary_is_not_one(tmp_path):
    speaks = {"type": "user", "message": {"content": '{"subtype":"compact_boundary"}', "x": "compact_boundary"}}
    write(tmp_path, boundary(600), reply(40_000), speaks, reply(50_000))
    tail = read_tail(str(tmp_path / "session.jsonl"))
    assert (tail.totals, tail.compaction.after) == ([50_000, 40_000], 40_000)


@pytest.mark.parametrize(
    "end",
    [
        b'{"type":"assistant","message":{"usage":{"inp',
        b'{"usage": "\xe2\x96',
        b"\xff\xfe\x00" * 50,
        b'{"usage":' * 9_000,
    ],
    ids=["half a line", "half a character", "no text", "too deep"],
)
def test_an_end_that_cannot_be_read_leaves_what_is_before_it(tmp_path, end):
    write(tmp_path, reply(50_000), reply(60_000))
    with (tmp_path / "session.jsonl").open("ab") as file:
        file.write(end)
    assert run(sent(tmp_path, None)).startswith("▓▓▓░░░░░░░ 30% · 60k of 200k tokens")


def test_a_line_of_five_megabytes_costs_the_forecast_and_nothing_else(tmp_path):
    write(tmp_path, reply(50_000), reply(60_000) | {"text": "x" * 5_000_000})
    assert run(sent(tmp_path, used(60_000))) == "▓▓▓░░░░░░░ 30% · 60k of 200k tokens · compacts in ~93k tokens"


def test_a_transcript_that_is_no_file_is_none(tmp_path):
    os.mkfifo(tmp_path / "session.jsonl")
    assert run(sent(tmp_path, used(60_000))).endswith("compacts in ~93k tokens")
    assert run(sent(tmp_path, None, transcript_path=str(tmp_path))).endswith("waiting for the first answer")


# Settings and windows


def test_levels_of_the_environment_are_those_of_the_settings(tmp_path):
    line = run(sent(tmp_path, used(124_000)), COMPACTOR_LEVELS="soft=0.5:0.3", COMPACTOR_WINDOW="400k")
    assert line == "▓▓▓░░░░░░░ 31% · 124k of 400k tokens · compacts in ~72k tokens"


@pytest.mark.parametrize(
    ("config", "ending"),
    [
        ('summarizer = "openai/x"\nsummarizer_window = 9000\n', "124k of 200k tokens · compacts in ~29k tokens"),
        ("window = 150_000\n", "83% · 124k of 150k tokens · compacts soon"),
        ("[levels.soft]\nthreshold = 0.5\n", "62% · 124k of 200k tokens · compacts soon"),
        ('reserve_output_tokens = 0\n"enabled" = true\n', "124k of 200k tokens · compacts in ~36k tokens"),
        ("enabled = false\n", "62% · 124k of 200k tokens · compactor is off"),
        ("window = -1\n", "62% · 124k of 200k tokens · settings cannot be read, see compactor config"),
        ("window = \xff", "62% · 124k of 200k tokens · settings cannot be read, see compactor config"),
    ],
)
def test_the_settings_of_the_project_hold(tmp_path, config, ending):
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "config.toml").write_text(config, encoding="latin-1")
    assert run(sent(tmp_path, used(124_000))).endswith(ending)


@pytest.mark.parametrize(
    ("told", "window"),
    [
        ("150000", "150k"),
        ("150k", "100k"),
        ("5", "100k"),
        ("9999999999999999999", "200k"),
        ("-1", "200k"),
        ("x", "200k"),
    ],
)
def test_a_window_that_claude_code_was_told_to_use_is_the_window(tmp_path, told, window):
    assert f"% · 50k of {window} tokens · " in run(sent(tmp_path, used(50_000)), CLAUDE_CODE_AUTO_COMPACT_WINDOW=told)


def test_without_a_window_in_the_input_the_known_one_of_the_model_is_used(tmp_path):
    call = sent(tmp_path, None, context_window=None, model={"id": "claude-sonnet-4-5[1m]"})
    write(tmp_path, reply(100_000))
    assert run(call) == "▓░░░░░░░░░ 10% · 100k of 1M tokens · compacts in ~693k tokens"


# Terminals


def test_a_narrow_terminal_loses_what_matters_least(tmp_path):
    write(tmp_path, boundary(14 * 60 + 5), *(reply(39_000 + 3_000 * step) for step in range(29)))
    call = sent(tmp_path, used(156_000))
    said = [run(call, COLUMNS=str(columns)) for columns in (0, 80, 60, 45, 30, 15, 8, 1)]
    assert said == [
        "▓▓▓▓▓▓▓▓░░ 78% · 156k of 200k tokens · compacts soon · compacted 14 min ago, 161k → 39k",
        "▓▓▓▓▓▓▓▓░░ 78% · 156k of 200k tokens · compacts soon · compacted 14 min ago",
        "▓▓▓▓▓▓▓▓░░ 78% · 156k of 200k tokens · compacts soon",
        "▓▓▓▓▓▓▓▓░░ 78% · compacts soon",
        "▓▓▓▓▓▓▓▓░░ 78%",
        "78%",
        "78%",
        "7",
    ]


@pytest.mark.parametrize("columns", ["", "x", "-5", "1e9", "²", "9" * 5_000])
def test_columns_that_are_no_number_set_no_limit(tmp_path, columns):
    assert run(sent(tmp_path, used(60_000)), COLUMNS=columns).endswith("60k of 200k tokens · compacts in ~93k tokens")


def test_colours_go_with_the_level_and_only_where_they_are_wanted(tmp_path):
    def starts(tokens: int, **env: str) -> str:
        return run(sent(tmp_path, used(tokens)), **env).partition("▓")[0]

    shown = [starts(tokens, NO_COLOR="") for tokens in (60_000, 160_000, 165_000, 190_000)]
    assert shown == ["\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1;31m"]
    assert run(sent(tmp_path, used(60_000)), NO_COLOR="").count("\x1b[0m") == 1
    assert starts(60_000) == starts(60_000, NO_COLOR="", TERM="dumb") == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1251"])
def test_an_encoding_without_blocks_gets_ascii(tmp_path, encoding):
    write(tmp_path, boundary(600), reply(39_000))
    line = run(sent(tmp_path, used(124_000)), PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert line == "######---- 62% | 124k of 200k tokens | compacts in ~29k tokens | compacted 10 min ago, 161k -> 39k"


# Whatever comes


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (b"", "compactor: standard input is empty"),
        (b"{", "compactor: standard input is not JSON"),
        (b"\xff\xfe{", "compactor: standard input is not JSON"),
        (b"[" * 100_000, "compactor: standard input is not JSON"),
        (b'{"a":"' + b"x" * 5_000_000 + b'"}', "compactor: standard input is not JSON"),
        (b'{"cwd": ' + b"1" * 5_000 + b"}", "compactor: standard input is not JSON"),
        (b"[]", "compactor: standard input is not a JSON object"),
        (b'{"transcript_path": 5, "cwd": []}', "░░░░░░░░░░ waiting for the first answer"),
        (b'{"transcript_path": "\\ud83d", "cwd": "\\u0000"}', "░░░░░░░░░░ waiting for the first answer"),
    ],
    ids=["nothing", "half", "no text", "deep", "huge", "long number", "list", "empty", "half a character"],
)
def test_bad_input_prints_a_harmless_line_and_leaves_with_zero(given, said):
    assert run(given) == said
    assert len(run(given, COLUMNS="24")) <= 20


def test_at_a_terminal_it_says_who_calls_it():
    controller, terminal = pty.openpty()
    ran = subprocess.run(COMMAND, stdin=terminal, capture_output=True, check=False, env=PLAIN)
    os.close(terminal)
    os.close(controller)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"compactor: Claude Code runs this")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "0<&- 1>&- 2>&-", "| true"])
def test_streams_that_are_closed_are_no_reason_to_fail(closed):
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"'{COMMAND[0]}' -m {COMMAND[2]} {closed}"],
        input=b"{}",
        capture_output=True,
        check=False,
        env=PLAIN,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def in_here(call: object, env: dict[str, str]) -> str:
    """What `main` prints, for tests that ask it often."""
    out, real_input, real_env = io.StringIO(), sys.stdin, dict(os.environ)
    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(call).encode()))
    os.environ.clear()
    os.environ.update(PLAIN | env)
    try:
        with contextlib.redirect_stdout(out):
            assert main() == 0
    finally:
        sys.stdin = real_input
        os.environ.clear()
        os.environ.update(real_env)
    return out.getvalue()


def assert_is_one_harmless_line(text: str) -> None:
    assert text.endswith("\n")
    line = text[:-1]
    assert line.strip()
    assert line.isprintable()
    assert "no status" not in line


PATHS = [
    *((name,) for name in sent(Path(), None)),
    *(("context_window", name) for name in sent(Path(), None)["context_window"]),
    *(("context_window", "current_usage", name) for name in ZEROS),
    *(("model", name) for name in ("id", "display_name")),
    *(("workspace", name) for name in ("current_dir", "project_dir")),
]
NUMBERS = st.integers() | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text() | st.sampled_from([10**400, -1, 1e308, "\ud800", "/dev/zero"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("path", PATHS, ids=".".join)
@given(value=VALUES, columns=st.integers(0, 130))
@example(value=10**400, columns=0)
@example(value=float("nan"), columns=40)
@example(value="a\x1b[2J\n\u2028b", columns=0)
def test_any_value_in_any_field_gives_one_line_without_control_characters(path, value, columns):
    call = sent(Path("nowhere"), used(124_000))
    inner = call
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    text = in_here(call, {"COLUMNS": str(columns)})
    assert_is_one_harmless_line(text)
    if columns:
        assert len(text) - 1 <= max(1, columns - 4)


FIELDS = ("type", "subtype", "timestamp", "compactMetadata", "isSidechain", "message", "isApiErrorMessage")


@given(
    changes=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(FIELDS), VALUES), max_size=4),
    usage=st.dictionaries(st.sampled_from(sorted(ZEROS)), VALUES, max_size=4),
    zeros=st.booleans(),
)
def test_any_value_in_any_line_of_a_transcript_gives_one_line(tmp_path_factory, changes, usage, zeros):
    folder = tmp_path_factory.mktemp("any")
    answer = {"type": "assistant", "message": {"usage": usage, "id": "one"}}
    lines = [reply(100_000), boundary(60), answer, reply(30_000)]
    for at, name, value in changes:
        lines[at][name] = value
    write(folder, *lines)
    assert_is_one_harmless_line(in_here(sent(folder, ZEROS if zeros else None), {}))


@given(tail=st.binary(max_size=400), at=st.integers(0, 1_000))
def test_a_transcript_with_any_bytes_in_it_gives_one_line(tmp_path_factory, tail, at):
    folder = tmp_path_factory.mktemp("bytes")
    write(folder, reply(100_000), boundary(60), reply(30_000))
    whole = (folder / "session.jsonl").read_bytes()
    (folder / "session.jsonl").write_bytes(whole[:at] + tail + whole[at:])
    assert_is_one_harmless_line(in_here(sent(folder, None), {}))


def test_an_error_of_our_own_is_a_line_too(tmp_path, monkeypatch):
    monkeypatch.setattr("context_compactor.agents.statusline.session_status", lambda *_: 1 // 0)
    said = in_here(sent(tmp_path, None), {})
    assert said == "compactor: no status (ZeroDivisionError); see compactor doctor\n"


# Who compacts


@pytest.mark.parametrize(("way", "end"), [("ours", " · ours"), ("steered", " · steered"), ("beside", ""), ("", "")])
def test_a_word_says_who_compacts_where_that_is_not_the_agent_alone(tmp_path, way, end):
    call = sent(tmp_path, used(60_000))
    before = in_here(call, {})
    (tmp_path / ".compactor").mkdir()
    state = open_hook_state(str(tmp_path / ".compactor"), create=True)
    assert state is not None
    state.change(str(call["session_id"]), 0.0, {"compaction": way})
    assert in_here(call, {}) == before.removesuffix("\n") + end + "\n"
    assert in_here(call, {"COLUMNS": str(len(before) + 3)}) == before  # the word goes first


def test_what_hooks_remember_may_be_damaged_and_the_line_stays(tmp_path):
    call = sent(tmp_path, used(60_000))
    before = in_here(call, {})
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "agents.db").write_bytes(b"this is no database, and long enough to be read as one" * 40)
    assert in_here(call, {}) == before


# How it is started


def test_nothing_slow_is_loaded_when_no_setting_asks_for_it(tmp_path):
    write(tmp_path, boundary(600), *(reply(39_000 + step * 1_000) for step in range(20)))
    loads = "import sys; from context_compactor.agents.statusline import main; main(); print(*sorted(sys.modules))"
    call = json.dumps(sent(tmp_path, used(60_000))).encode()
    ran = subprocess.run([sys.executable, "-c", loads], input=call, capture_output=True, check=True, env=PLAIN)
    names = set(ran.stdout.decode().splitlines()[1].split())
    assert not names & {"msgspec", "typing", "pathlib", "tomllib", "typer", "sqlite3"}
    assert {name for name in names if name.startswith("context_compactor.")} <= {
        "context_compactor.agents",
        "context_compactor.agents.paths",
        "context_compactor.agents.transcript_tail",
        "context_compactor.agents.statusline",
    }


def test_the_help_says_how_to_register_it_by_hand():
    app = typer.Typer()
    app.command()(statusline)
    helped = CliRunner().invoke(app, ["--help"])
    assert helped.exit_code == 0
    assert '"statusLine"' in helped.output
    asked = CliRunner().invoke(app, [], input="{}", env={"NO_COLOR": "1"})
    assert (asked.exit_code, asked.output) == (0, "░░░░░░░░░░ waiting for the first answer\n")


def test_what_is_said_can_be_asked_for_as_parts(tmp_path):
    write(tmp_path, boundary(120), reply(30_000))
    status = session_status(sent(tmp_path, used(160_000)), {}, time.time())
    assert (status.level, status.used, status.compacted[1]) == ("soft", "160k of 200k tokens", "compacted 2 min ago")
