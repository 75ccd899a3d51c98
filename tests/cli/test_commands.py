from __future__ import annotations

import gzip
import io
import json

import pytest

from context_compactor.engine.report import Report
from context_compactor.engine.tiers import Tier
from context_compactor.settings import Settings
from tests.agents.plugin_log import FIRST, plugin_log
from tests.cli.conftest import conversation

LEVELS = ("soft", "aggressive", "emergency")


def test_compact_prints_the_messages_and_puts_the_report_beside_them(run, transcript):
    ran = run("compact", transcript, "--target", "25%")
    assert ran.code == 0
    assert len(ran.out) < transcript.stat().st_size / 2
    assert ran.json[-1] == {"role": "user", "content": "Go on."}
    assert ran.err.startswith("Conversation compacted:")
    assert "\nTokens: " in ran.err


def test_with_a_file_for_the_messages_the_report_is_the_output(run, transcript, tmp_path):
    ran = run("compact", transcript, "--target", "25%", "-o", tmp_path / "out.json")
    assert ran.code == 0
    assert ran.out.startswith("Conversation compacted:")
    assert ran.err == ""
    assert json.loads((tmp_path / "out.json").read_bytes())[0]["role"] == "system"


def test_json_is_one_document_with_messages_and_report_and_nothing_else(run, transcript):
    ran = run("compact", transcript, "--target", "25%", "--json", "--session", "run-42")
    assert set(ran.json) == {"messages", "report"}
    assert list(ran.json["report"]) == list(Report.unchanged("", tokens=0, messages=0).to_dict())
    assert ran.json["report"]["session_id"] == "run-42"
    assert ran.err == ""


def test_json_together_with_a_file_writes_both(run, transcript, tmp_path):
    ran = run("compact", transcript, "--target", "25%", "--json", "-o", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_bytes()) == ran.json["messages"]


def test_a_share_is_kept_to_as_the_report_counts(run, transcript):
    report = run("compact", transcript, "--target", "30%", "--json").json["report"]
    assert report["tokens_after"] <= report["target_tokens"]
    assert report["target_tokens"] == pytest.approx(0.3 * report["tokens_before"], abs=1)


def test_the_input_is_never_overwritten_since_it_holds_the_originals(run, transcript):
    before = transcript.read_bytes()
    ran = run("compact", transcript, "--target", "25%", "-o", transcript)
    assert ran.code == 2
    assert "is the input" in ran.err
    assert transcript.read_bytes() == before


def test_a_large_window_leaves_everything_as_it_was_and_says_why(run, transcript):
    ran = run("compact", transcript, "--window", "1m")
    assert ran.code == 0
    assert ran.json == conversation()
    assert ran.err.startswith("No compaction needed: ")


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_works_at_any_fill(run, transcript, level):
    ran = run("compact", transcript, "--window", "40k", "--level", level, "--json")
    assert ran.code == 0
    assert ran.json["report"]["level"] == level
    assert ran.json["report"]["status"] == "success"


def test_what_cannot_fit_leaves_with_three_and_says_what_is_too_large(run, transcript):
    ran = run("compact", transcript, "--target", "20", "--json")
    assert ran.code == 3
    assert ran.json["report"]["status"] == "partial"
    assert ran.json["report"]["floor"]


def test_a_gzip_and_standard_input_are_read_like_a_file(run, transcript, monkeypatch, tmp_path):
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(transcript.read_bytes()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(transcript.read_bytes())))
    outputs = {run("compact", file, "--target", "25%").out for file in (transcript, packed, "-")}
    assert len(outputs) == 1


class Interrupted(io.BytesIO):
    def read(self, _size=-1):
        raise KeyboardInterrupt


def test_an_interruption_leaves_with_130_and_nothing_half_written(run, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", Interrupted())
    ran = run("compact", "-", "-o", tmp_path / "out.json")
    assert (ran.code, ran.out) == (130, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "nothing in it"),
        (b"\x00\x01\x02\xff\xfe", "bad.json"),
        (b'{"role": "user", ', "bad.json"),
        (b'[{"role": "robot", "content": "x"}]', "role"),
        (b"[]", "bad.json"),
        (b'[{"role": "tool", "content": "x"}]', "tool_call_id"),
        (b"42", "bad.json"),
    ],
)
@pytest.mark.parametrize("command", ["compact", "plan", "show"])
def test_a_file_that_is_no_conversation_is_refused_with_its_reason(run, tmp_path, content, told, command):
    (tmp_path / "bad.json").write_bytes(content)
    ran = run(command, tmp_path / "bad.json", "--json")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["compact", "no-such-file.json"],
        ["compact", "."],
        ["compact", "session.json", "--target", "0"],
        ["compact", "session.json", "--target", "-5"],
        ["compact", "session.json", "--window", "-1"],
        ["compact", "session.json", "--window", "many"],
        ["compact", "session.json", "--summarizer", "nobody/x"],
        ["compact", "session.json", "--target", "25%", "-o", "no/such/folder/out.json"],
        ["compact", "session.json", "--level", "hard"],
        ["compact"],
        ["compact", "session.json", "--no-such-option"],
        ["no-such-command"],
    ],
)
def test_wrong_usage_leaves_with_two_and_nothing_on_standard_output(run, transcript, arguments):
    ran = run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err
    assert "Traceback" not in ran.err


def test_a_wrong_value_is_named_with_its_range(run, transcript):
    assert run("compact", transcript, "--window", "-1").err == (
        "error: window: '-1' is not a whole number from 1 to 1,000,000,000,000, or none (from argument)\n"
    )


def test_plan_shows_every_target_with_tier_tokens_and_reason(run, transcript):
    ran = run("plan", transcript, "--target", "25%", "--json")
    assert ran.code == 0
    assert {decision["tier"] for decision in ran.json["decisions"]} <= {tier.value for tier in Tier}
    for decision in ran.json["decisions"]:
        assert decision["reason"]
        assert 0 <= decision["relevance"] <= 1
        assert decision["tokens_after"] <= decision["tokens_before"]


def test_a_dry_run_of_compact_is_the_plan(run, transcript):
    planned = run("plan", transcript, "--target", "25%", "--json")
    dry = run("compact", transcript, "--target", "25%", "--dry-run", "--json")
    assert dry.code == planned.code
    assert dry.json["decisions"] == planned.json["decisions"]


def test_a_dry_run_of_compact_writes_nothing(run, transcript, tmp_path):
    ran = run("compact", transcript, "--target", "25%", "--dry-run", "-o", tmp_path / "out.json")
    assert ran.code == 2
    assert not (tmp_path / "out.json").exists()


def test_plan_changes_nothing_and_agrees_with_compact(run, transcript):
    before = transcript.read_bytes()
    planned = run("plan", transcript, "--target", "25%", "--json").json["report"]
    done = run("compact", transcript, "--target", "25%", "--json").json["report"]
    assert transcript.read_bytes() == before
    assert planned["tokens_after"] == done["tokens_after"]


def test_plan_for_people_can_be_cut_to_what_saves_most(run, transcript):
    everything, few = (
        run("plan", transcript, "--target", "25%"),
        run("plan", transcript, "--target", "25%", "--most", "3"),
    )
    assert everything.out.count("\nturn ") > 10
    assert few.out.count("turn ") < 10
    assert "more" in few.out
    for name in ("keep", "summarize", "reference", "drop"):
        assert name in few.out


def test_show_tells_sections_levels_counters_forecast_and_tiers(run, transcript):
    ran = run("show", transcript, "--window", "40k")
    assert ran.code == 0
    for text in ("tool results", "in all", *LEVELS, "40 tool results", "files loaded", "forecast", "tiers", "40,000"):
        assert text in ran.out


def test_show_as_json_adds_up(run, transcript):
    shown = run("show", transcript, "--window", "40k", "--json").json
    assert sum(shown["usage"]["sections"].values()) == shown["usage"]["tokens"]
    assert shown["window"] == {"tokens": 40_000, "source": "from the setting"}
    assert shown["messages"] == len(conversation())
    assert sum(shown["tiers"].values()) <= shown["turns"]


def test_show_names_the_source_of_the_window(run, transcript):
    assert "assumed" in run("show", transcript).out


def test_config_prints_every_setting_with_its_origin(run, monkeypatch):
    monkeypatch.setenv("COMPACTOR_WINDOW", "123k")
    monkeypatch.setenv("COMPACTOR_WINDW", "3")
    ran = run("config")
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert set(Settings.__struct_fields__) <= set(lines)
    assert lines["window"].split()[1:] == ["123000", "COMPACTOR_WINDOW"]
    assert "COMPACTOR_WINDW names no setting" in ran.out


def test_config_as_json_explains_every_setting(run):
    shown = run("config", "--json").json
    assert list(shown["settings"]) == list(Settings.__struct_fields__)
    assert all(row["description"] and row["origin"] == "default" for row in shown["settings"].values())


def test_settings_of_the_project_are_used(run, transcript, tmp_path):
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "config.toml").write_text("enabled = false\n")
    ran = run("compact", transcript, "--target", "10%")
    assert ran.code == 0
    assert ran.json == conversation()
    assert "turned off" in ran.err


def test_a_mistake_in_the_settings_of_the_project_is_told(run, transcript, tmp_path):
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "config.toml").write_text("windw = 3\n")
    ran = run("compact", transcript)
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean window?" in ran.err


def test_text_of_the_conversation_cannot_drive_the_terminal(run, tmp_path):
    messages = conversation()
    messages[1]["content"] = "\x1b]0;owned\x07\x1b[31mred"
    (tmp_path / "evil.json").write_text(json.dumps(messages))
    for command in ("plan", "show"):
        assert "\x1b" not in run(command, tmp_path / "evil.json").out


def test_nothing_is_coloured_where_nobody_looks(run, transcript):
    assert "\x1b" not in run("plan", transcript, "--target", "25%").out


def test_every_command_is_explained_with_an_example(run):
    import typer.main

    from context_compactor.cli.main import app

    commands = typer.main.get_command(app).commands
    assert len(commands) > 15
    for name, command in commands.items():
        assert f"Example: `compactor {name}" in command.help, name
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        assert all(param.help for param in shown if param.name != "help"), name


def test_what_a_plugin_left_in_a_log_when_it_compacted_is_not_compacted_as_the_users_words(run, tmp_path):
    log = plugin_log("no results")
    for step in range(40):
        log.call(f"cat notes_{step}", f"toolu_more_{step}")
        log.result(f"toolu_more_{step}", "\n".join(f"note {line} of {step}" for line in range(40)))
    log.typed("Go on.")
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(log.lines()))
    ran = run("compact", path, "--target", "20%")
    assert ran.code == 0
    assert FIRST in ran.out
    assert "Failed before" not in ran.out
    assert not any(word in ran.out for word in ("Rust", "MongoDB", "make deploy", "before pushing"))


def test_messages_of_two_dialects_need_a_dialect_by_name(run, tmp_path):
    messages = conversation(4)
    result = {"type": "tool_result", "tool_use_id": "b", "content": "1"}
    mixed = [*messages, {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]}]
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps(mixed))
    for command in ("show", "plan", "compact"):
        ran = run(command, path)
        assert ran.code == 2
        assert "openai-chat: messages" in ran.err
        assert f"anthropic: message {len(messages)}" in ran.err
        assert "--dialect openai-chat" in ran.err
        assert run(command, path, "--dialect", "openai-chat").code == 0
    assert run("compact", path, "--dialect", "openai-chat", "--session", "run-42").code == 0
    assert run("history", "run-42", "--json").json["messages"] == mixed
    refused = run("show", "run-42", "--dialect", "openai-chat")
    assert refused.code == 2
    assert "already has its dialect" in refused.err


def test_a_log_of_an_agent_has_its_dialect(run, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(plugin_log().lines()))
    ran = run("show", log, "--dialect", "openai-chat")
    assert ran.code == 2
    assert "anthropic and not openai-chat" in ran.err


def test_a_context_that_is_written_names_recall_only_where_the_request_declares_it(run, transcript, tmp_path):
    body = {
        "messages": json.loads(transcript.read_text()),
        "tools": [{"type": "function", "function": {"name": "recall"}}],
    }
    (tmp_path / "body.json").write_text(json.dumps(body))
    plain, declared = (run("compact", file, "--target", "5000").out for file in (transcript, "body.json"))
    assert "recall(" not in plain
    assert "file_001" in plain or "turn_001" in plain
    assert "recall(" in declared
