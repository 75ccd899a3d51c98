"""`compactor tui`: what is wrong is said before anything is drawn."""

from __future__ import annotations

import pytest

from tests.server.running import running

LOCAL = "http://127.0.0.1:9/v1#some"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "smollm2"], "is not a model name"),
        (["--model", "http://127.0.0.1:9/v1"], "followed by #"),
        (["--window", "8k"], "--window needs --model"),
        (["--model", LOCAL, "--window", "many"], "'many' is not a whole number"),
        (["--model", LOCAL, "--session", " "], "is not a valid name"),
        (["--session", "nobody"], "there is no store"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(run, options, words):
    ran = run("tui", *options)
    assert ran.code != 0
    assert words in ran.err


def test_a_session_that_is_not_there_is_an_error_that_says_how_to_begin_it(run, stored):
    ran = run("tui", "--session", "nobody")
    assert ran.code != 0
    assert "no session 'nobody'" in ran.err
    assert "--model NAME" in ran.err


def test_a_session_that_is_not_there_on_a_server_is_the_same_error(run, tmp_path):
    with running(tmp_path) as server:
        ran = run("tui", "--server", server.url, "--session", "nobody")
    assert ran.code != 0
    assert "nobody" in ran.err
    assert "--model NAME" in ran.err


@pytest.mark.parametrize("options", [["--session", "new", "--model", LOCAL], ["--session", "run-42"]])
def test_a_session_that_is_there_or_can_be_begun_is_not_refused(run, stored, options):
    ran = run("tui", *options)
    assert "standard output is not a terminal" in ran.err


def test_a_server_that_does_not_answer_is_left_to_the_screen(run):
    ran = run("tui", "--server", "http://127.0.0.1:9", "--session", "run")
    assert "standard output is not a terminal" in ran.err
