"""`compactor eval` as a user meets it."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from context_compactor.cli.report import ProgressBar
from tests.evaluation.models import good
from tests.evaluation.talks import long_messages, record
from tests.failures.served import says, serving
from tests.llm.formats import FORMATS
from tests.waiting import PATIENCE, wait_for

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"
COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]
QUICK = ("--methods", "keep-last,nothing", "--budget", "25", "--jobs", "1")


@pytest.fixture
def logs(tmp_path):
    """A folder as people have it: one session, one that is broken, one that is too short, something else."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "good.json").write_text(json.dumps(long_messages()))
    (folder / "broken.jsonl").write_text("{not json}\n{}")
    (folder / "short.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    (folder / "package.json").write_text('{"name": "shop"}')
    return folder


def test_a_folder_gives_a_table_and_names_what_was_left_out(run, logs):
    ran = run("eval", logs, *QUICK)
    assert (ran.code, ran.err) == (0, "")
    assert "2 conversations of 1 project in 4 files" in ran.out
    assert "1 too short" in ran.out
    assert f"skipped {logs}/broken.jsonl: " in ran.out
    assert f"skipped {logs}/package.json: " in ran.out
    assert "no compaction happened" in ran.out
    assert "Compacted to 25 %" in ran.out
    assert all(name in ran.out for name in ("keep-last", "FRR", "RESTORE", "Cost: no conversation"))


def test_json_is_one_document_and_nothing_else(run, logs):
    ran = run("eval", logs, *QUICK, "--json")
    assert ran.err == ""
    assert ran.json["inputs"]["too_short"] == 1
    assert {Path(item["path"]).name for item in ran.json["inputs"]["skipped"]} == {"broken.jsonl", "package.json"}
    assert {row["method"] for row in ran.json["rows"]} == {"keep-last", "nothing"}
    assert {row["shares"]["FRR"] for row in ran.json["rows"] if row["method"] == "nothing"} == {0.0}


def test_two_runs_print_the_same_bytes(run, logs):
    assert run("eval", logs, *QUICK, "--json").out == run("eval", logs, *QUICK, "--json").out


def test_a_page_and_a_document_can_be_had_together(run, logs, tmp_path):
    ran = run("eval", logs, *QUICK, "--json", "--html", "page.html")
    assert ran.json["budgets"] == ["25"]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_real_compactions_are_measured_beside_the_models_summary(run, tmp_path):
    events = [{"type": "compaction", "at": 60, "summary": "roundPriceUp is to be fixed."}]
    (tmp_path / "real.json").write_text(json.dumps(record(events=events)))
    rows = run("eval", tmp_path / "real.json", *QUICK, "--json").json["rows"]
    assert {row["method"] for row in rows if row["budget"] == "real"} == {"keep-last", "nothing", "summary"}


def test_the_shipped_session_can_be_evaluated_with_every_method(run):
    ran = run("eval", SHIPPED, "--budget", "10", "--jobs", "1")
    assert ran.code == 0
    for method in ("compactor", "keep-last", "trim", "head-and-tail", "truncate-outputs", "masking", "random-drop"):
        assert f"\n{method} " in ran.out
    assert "logged replies" in ran.out


def test_a_model_is_one_method_more_and_what_became_of_its_summaries_is_told(run, logs, monkeypatch):
    monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "128000")
    wire = FORMATS["openai"]
    with serving(lambda request: says(wire, good(request))) as provider:
        asked = ("eval", logs / "good.json", "--methods", "compactor", "--budget", "25", "--jobs", "1")
        name = f"{provider.url}/v1#some"
        ran = run(*asked, "--summarizer", name)
        found = run(*asked, "--summarizer", name, "--json").json
    assert "\ncompactor+model " in ran.out
    assert f"Summaries by {name}" in ran.out
    assert "cost unknown" in ran.out
    assert [row["method"] for row in found["rows"] if row["source"] == "all"][:2] == ["compactor", "compactor+model"]
    assert found["model_use"][0]["used"] == found["model_use"][0]["compactions"]
    assert (found["model"], len(provider.bodies)) == (name, 2 * found["model_use"][0]["calls"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("logs", "--summarizer", "nobody"), "is not a model name"),
        (("nowhere",), "no such file"),
        (("empty",), "no file here ends in"),
        (("logs/broken.jsonl",), "none holds a conversation"),
        (("logs/short.json",), "none is long enough"),
        (("logs", "--methods", "magic"), "Known: compactor, everything"),
        (("logs", "--methods", "no_such:thing"), "cannot be imported"),
        (("logs", "--budget", "0"), "'0' is not a budget"),
        (("logs", "--budget", "real", "--jobs", "1"), "made by an agent"),
        (("logs", "--html", "nowhere/page.html"), "does not exist"),
        (("logs", "--html", "empty"), "is a folder"),
        (("logs", "--every", "0"), "0 is not in the range"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_done_leaves_with_two_and_says_why(run, logs, tmp_path, arguments, said):
    (tmp_path / "empty").mkdir()
    ran = run("eval", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_page_that_cannot_be_written_is_refused_before_the_work(run, locked):
    assert "cannot be written" in run("eval", "logs", "--html", locked / "page.html").err


def test_a_method_of_ones_own_is_found_in_the_folder_one_is_in(run, logs, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_methods_here.py").write_text("def first(messages, budget):\n    return messages[:1]\n")
    ran = run("eval", logs, "--methods", "my_methods_here:first", "--budget", "25", "--jobs", "1", "--json")
    assert ran.json["methods"] == ["my_methods_here:first"]


def test_help_does_not_load_the_harness():
    code = (
        "import sys\nfrom context_compactor.cli.main import app\n"
        "try: app(args=['eval', '--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if 'quality' in name or name in ('splintr', 'tree_sitter')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_ctrl_c_leaves_with_130_no_traceback_and_no_half_written_page(tmp_path):
    (tmp_path / "many.jsonl").write_text("\n".join([json.dumps(record())] * 400))
    reader, terminal = pty.openpty()
    command = [*COMMAND, "eval", tmp_path, "--every", "1", "--jobs", "2", "--html", tmp_path / "page.html"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, start_new_session=True) as ran:
        os.close(terminal)
        said = os.read(reader, 4096)
        with ThreadPoolExecutor(1) as pool:
            rest = pool.submit(lambda: b"".join(iter(lambda: _read(reader), b"")))  # a full terminal would stop it
            wait_for(lambda: len(_workers(ran.pid)) >= 2)
            os.killpg(ran.pid, signal.SIGINT)
            assert ran.stdout is not None
            assert ran.stdout.read() == b""
            said += rest.result()
    assert ran.returncode == 130
    assert b"Reading" in said
    assert b"Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["many.jsonl"]


def test_an_end_from_outside_leaves_no_worker_behind(tmp_path):
    (tmp_path / "0.json").write_text(json.dumps(long_messages()))
    for number in range(1, 2_000):  # more than can be done before the end comes
        (tmp_path / f"{number}.json").hardlink_to(tmp_path / "0.json")
    arguments = ["eval", str(tmp_path), "--methods", "compactor", "--every", "1", "--jobs", "2"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wait_for(lambda: len(_workers(running.pid)) >= 2)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=PATIENCE)  # ends only when nobody holds the pipes any more
    assert running.returncode in (143, -15)  # the second when it was ended before the work began


def _workers(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _read(reader):
    try:
        return os.read(reader, 4096)
    except OSError:
        os.close(reader)
        return b""


class Terminal(io.StringIO):
    encoding = "ascii"

    def isatty(self):
        return True


def test_the_bar_is_drawn_on_a_terminal_and_taken_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = ProgressBar(stream)
    bar.start("Reading", 2)
    bar.step()
    bar.step()
    bar.clear()
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn[1].startswith("Reading")
    assert drawn[-2].endswith("100 %")
    assert drawn[-1] == ""
    assert "\x1b[3" not in stream.getvalue()


def test_the_bar_says_nothing_where_nobody_looks():
    stream = io.StringIO()
    bar = ProgressBar(stream)
    bar.start("Reading", 2)
    bar.step(2)
    bar.clear()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("page", ["logs/good.json", "logs/link.html"])
def test_a_page_never_overwrites_a_transcript(run, logs, page):
    (logs / "link.html").symlink_to(logs / "good.json")
    before = (logs / "good.json").read_bytes()
    ran = run("eval", logs / "good.json", logs, *QUICK, "--html", logs.parent / page)
    assert ran.code == 2
    assert "would be overwritten" in ran.err
    assert (logs / "good.json").read_bytes() == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("return 'a text'", "returned no list of messages"),
        ("return [1, 2]", "returned no list of messages"),
    ],
)
def test_a_method_of_ones_own_that_fails_is_named(run, logs, tmp_path, monkeypatch, body, said):
    module = f"own_{abs(hash(body))}"
    (tmp_path / f"{module}.py").write_text(f"def method(messages, budget):\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    ran = run("eval", logs, "--methods", f"{module}:method", "--budget", "25", "--jobs", "1")
    assert (ran.code, ran.out) == (2, "")
    assert f"the method {module}:method" in ran.err
    assert said in ran.err


def test_half_a_character_in_a_transcript_does_not_stop_the_run(run, logs):
    (logs / "half.json").write_text(json.dumps([*long_messages(), {"role": "user", "content": "\ud83d"}]))
    ran = run("eval", logs, "--methods", "compactor", "--budget", "25", "--jobs", "1")
    assert (ran.code, ran.err) == (0, "")
