from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor import settings as settings_module
from context_compactor.errors import BadSetting
from context_compactor.settings import DEFAULT_LEVELS, Level, LoadedSettings, Settings, expected, load_settings


def load(overrides=None, env=None, config_path=None) -> LoadedSettings:
    return load_settings(overrides, env=env or {}, config_path=config_path)


@pytest.fixture
def config(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "config.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_defaults_are_those_that_were_decided():
    settings = load().settings
    assert settings.levels == DEFAULT_LEVELS
    assert [(rule.threshold, rule.target) for rule in settings.levels] == [(0.80, 0.40), (0.85, 0.25), (0.95, 0.15)]
    assert (settings.enabled, settings.preserve_recent_turns, settings.min_gain_percent) == (True, 5, 10)
    assert (settings.max_output_tokens, settings.idle_seconds, settings.retry_attempts) == (5000, 5, 3)
    assert (settings.model, settings.tail_share, settings.overhead_tokens) == (None, 0.15, 0)


def test_an_argument_beats_the_environment_which_beats_the_file_which_beats_the_default(config):
    path = config("window = 1000\nidle_seconds = 1\nretry_attempts = 2\n")
    loaded = load({"window": 3000}, {"COMPACTOR_WINDOW": "2000", "COMPACTOR_IDLE_SECONDS": "9"}, path)
    assert (loaded.settings.window, loaded.settings.idle_seconds, loaded.settings.retry_attempts) == (3000, 9, 2)
    assert loaded.origins["window"] == "argument"
    assert loaded.origins["idle_seconds"] == "COMPACTOR_IDLE_SECONDS"
    assert loaded.origins["retry_attempts"] == str(path)
    assert loaded.origins["enabled"] == "default"


def test_an_override_of_none_counts_as_not_given():
    assert load({"window": None}, {"COMPACTOR_WINDOW": "2000"}).settings.window == 2000


def test_an_empty_variable_counts_as_not_given():
    assert load(env={"COMPACTOR_WINDOW": ""}).origins["window"] == "default"


@pytest.mark.parametrize(
    ("text", "value"), [("200_000", 200_000), ("200k", 200_000), ("1m", 1_000_000), ("none", None)]
)
def test_numbers_in_the_environment_may_be_written_as_people_write_them(text, value):
    assert load(env={"COMPACTOR_WINDOW": text}).settings.window == value


@pytest.mark.parametrize(
    ("text", "value"), [("off", False), ("0", False), ("false", False), ("yes", True), ("On", True)]
)
def test_switches_in_the_environment_may_be_written_as_people_write_them(text, value):
    assert load(env={"COMPACTOR_ENABLED": text}).settings.enabled is value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("window", -5),
        ("window", 2.5),
        ("window", True),
        ("window", "many"),
        ("tail_share", 1.5),
        ("tail_share", float("nan")),
        ("min_gain_percent", 101),
        ("retry_attempts", 0),
        ("window", 10**30),
        ("overhead_tokens", 10**30),
        ("suggest_files", 10**300),
        ("idle_seconds", 1e300),
        ("idle_seconds", 10**310),
        ("deadline_seconds", 10**9),
        ("retry_delay_seconds", 10**6),
        ("retention_days", 1e300),
        ("spend_limit", 1e300),
        ("models", {"openai/x": {"input": 1e300, "output": 1}}),
        ("compact_prompt", "half \ud800 of it"),
        ("model", "openai/\ud800"),
        ("agent_request", {"tools": [{"\ud800": 1}]}),
        ("deadline_seconds", float("inf")),
        ("enabled", "perhaps"),
        ("store", 7),
    ],
)
def test_a_bad_value_is_refused_with_name_value_range_and_origin(name, value):
    with pytest.raises(BadSetting) as caught:
        load({name: value})
    said = str(caught.value)
    assert said.startswith(f"{name}: {value!r} is not {expected(name)}")
    assert "argument" in said


def test_a_bad_value_names_the_variable_it_came_from():
    with pytest.raises(BadSetting, match="COMPACTOR_WINDOW"):
        load(env={"COMPACTOR_WINDOW": "-1"})


def test_settings_made_by_hand_are_checked_too():
    with pytest.raises(BadSetting, match="window: -1 is not a whole number from 1 to 1,000,000,000,000"):
        Settings(window=-1)


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_name(config):
    path = config("windw = 1000\n")
    with pytest.raises(BadSetting, match=r"windw: no such setting .* did you mean window"):
        load(config_path=path)


def test_a_file_that_is_not_toml_is_refused_with_its_name(config):
    path = config("window = = 3\n")
    with pytest.raises(BadSetting, match=r"config\.toml cannot be read"):
        load(config_path=path)


def test_a_file_that_was_named_must_exist(tmp_path):
    with pytest.raises(BadSetting, match="cannot be read"):
        load(config_path=tmp_path / "none.toml")


def test_the_project_file_is_read_when_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load().settings.window is None
    (tmp_path / ".compactor").mkdir()
    (tmp_path / ".compactor" / "config.toml").write_text("window = 4096\n")
    assert load().settings.window == 4096


def test_one_level_can_be_changed_alone(config):
    path = config("[levels.soft]\nthreshold = 0.7\n")
    rules = {rule.level: rule for rule in load(config_path=path).settings.levels}
    assert (rules[Level.SOFT].threshold, rules[Level.SOFT].target) == (0.7, 0.4)
    assert rules[Level.EMERGENCY] == DEFAULT_LEVELS[2]


def test_levels_can_be_given_in_one_variable():
    rules = load(env={"COMPACTOR_LEVELS": "soft=0.6:0.3, emergency=0.9:0.1"}).settings.levels
    assert [(rule.threshold, rule.target) for rule in rules] == [(0.6, 0.3), (0.85, 0.25), (0.9, 0.1)]


@pytest.mark.parametrize(
    "levels",
    [
        "soft=0.9:0.4",  # above aggressive
        "soft=0.8:0.8",  # would fire again at once
        "emergency=1.5:0.1",
        "soft=x:y",
        "hard=0.8:0.4",
        "",
        (),
        {"soft": 3},
        {"soft": {"begin": 0.5}},
        5,
    ],
)
def test_levels_that_could_never_work_are_refused(levels):
    with pytest.raises(BadSetting, match="levels"):
        load({"levels": levels})


def test_a_variable_that_names_no_setting_is_listed_as_ignored():
    assert load(env={"COMPACTOR_WINDW": "3", "PATH": "x"}).ignored == ("COMPACTOR_WINDW",)


@given(
    st.sampled_from(Settings.__struct_fields__),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
)
def test_any_value_for_any_setting_is_taken_or_refused_with_its_name(name, value):
    try:
        load({name: value})
    except BadSetting as error:
        assert str(error).startswith(name)


@given(st.dictionaries(st.sampled_from(["COMPACTOR_WINDOW", "COMPACTOR_LEVELS", "COMPACTOR_ENABLED"]), st.text()))
def test_any_environment_is_taken_or_refused(env):
    try:
        load(env=env)
    except BadSetting as error:
        assert "COMPACTOR_" in str(error)


def test_every_setting_has_its_explanation_under_it():
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(settings_module)).body
        if isinstance(node, ast.ClassDef) and node.name == "Settings"
    )
    for field, under in pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(under, ast.Expr), ast.unparse(field)


def test_a_setting_that_is_gone_is_told_and_read_past(tmp_path, caplog):
    path = tmp_path / "config.toml"
    path.write_text("plan_with_model = true\nwindow = 1000\n", encoding="utf-8")
    loaded = load_settings(env={}, config_path=path)
    assert loaded.settings.window == 1_000
    assert "plan_with_model: this setting is gone" in caplog.text


def test_a_setting_with_a_few_words_says_which_they_are():
    with pytest.raises(BadSetting, match="layout: 'both' is not one of auto, record, tail"):
        load_settings({"layout": "both"})


FORMER_SUMMARIZERS = ["openai/gpt-4.1", "anthropic/claude-sonnet-4-5", "http://127.0.0.1:8080/v1#small"]


@pytest.mark.parametrize("name", FORMER_SUMMARIZERS)
def test_a_model_that_wrote_summaries_before_is_refused_with_what_to_write_now(config, name):
    with pytest.raises(BadSetting, match=f"COMPACTOR_SUMMARIZER={name} in its place"):
        load(env={"COMPACTOR_MODEL": name})
    with pytest.raises(BadSetting, match=f'summarizer = "{name}" in its place'):
        load(config_path=config(f'model = "{name}"\n'))


@pytest.mark.parametrize("name", FORMER_SUMMARIZERS)
@pytest.mark.parametrize("summarizer", ["none", "openai/gpt-5-mini"])
def test_beside_a_summarizer_any_model_is_the_agents(name, summarizer):
    settings = load(env={"COMPACTOR_MODEL": name, "COMPACTOR_SUMMARIZER": summarizer}).settings
    assert (settings.model, settings.summarizer) == (name, None if summarizer == "none" else summarizer)


def test_a_bare_name_is_the_agents_model():
    assert load(env={"COMPACTOR_MODEL": "claude-sonnet-4-5"}).settings.model == "claude-sonnet-4-5"


def test_former_names_of_settings_are_read_with_a_warning(config, caplog):
    loaded = load(env={"COMPACTOR_MODEL_WINDOW": "9k"}, config_path=config("model_parallel_calls = 2\n"))
    assert (loaded.settings.summarizer_window, loaded.settings.summarizer_parallel_calls) == (9_000, 2)
    assert loaded.origins["summarizer_window"] == "COMPACTOR_MODEL_WINDOW"
    assert loaded.ignored == ()
    assert "Use summarizer_window." in caplog.text
    assert "Use summarizer_parallel_calls." in caplog.text


def test_the_current_name_of_a_setting_beats_the_former():
    env = {"COMPACTOR_SUMMARIZER_WINDOW": "9k", "COMPACTOR_MODEL_WINDOW": "8k"}
    assert load(env=env).settings.summarizer_window == 9_000
