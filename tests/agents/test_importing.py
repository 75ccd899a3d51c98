"""What an import of agents' logs promises, through the real command in a temporary home."""

from __future__ import annotations

import gzip
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import context_compactor.evaluation.inputs  # noqa: F401  a test that becomes nobody may not be allowed to read it
from context_compactor.agents.log_import import ImportFilter, ImportTarget, import_logs
from context_compactor.agents.sync import AgentLog, synced_session
from context_compactor.cli.main import main
from context_compactor.dialects.transcripts.reader import read_transcript
from context_compactor.sessions.session import Session
from context_compactor.settings import Settings, load_settings
from context_compactor.store.connect import connect

FIXTURES = Path(__file__).parents[1] / "fixtures" / "transcripts"
COMMAND = [sys.executable, "-c", "from context_compactor.cli.main import main; main()"]
STORE = "sqlite:///.compactor/compactor.db"
WORD = "multiply"
LONG_AGO = datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """A home of its own, in which the command is run; logs lie beside it."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("COMPACTOR_")]:
        monkeypatch.delenv(name)
    return place


@pytest.fixture
def run(capfd):
    """Runs `compactor import … --json`; the exit code and the document."""

    def run_command(*arguments: object, code: int = 0) -> dict:
        with pytest.raises(SystemExit) as left:
            main(["import", *map(str, arguments), "--json"])
        out, err = capfd.readouterr()
        assert (left.value.code or 0) == code, err
        return json.loads(out) if code != 2 else {"error": err}

    return run_command


def line(number: int, kind: str, message: dict, **more: object) -> dict:
    """A line of Claude Code, behind the one before it."""
    time = (LONG_AGO + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
    known = {"uuid": f"u{number}", "parentUuid": f"u{number - 1}" if number else None, "isSidechain": False}
    known |= {"type": kind, "message": message, "sessionId": "s-1", "cwd": "/srv/app", "timestamp": time}
    return known | more


def asked(number: int, text: str, **more: object) -> dict:
    return line(number, "user", {"role": "user", "content": text}, **more)


def answered(number: int, text: str, **more: object) -> dict:
    content = [{"type": "text", "text": text}]
    return line(number, "assistant", {"id": f"msg_{number}", "role": "assistant", "content": content}, **more)


def talk(steps: int, **more: object) -> list[dict]:
    """Questions and answers in turn."""
    pairs = (
        (asked(at, f"question {at}", **more), answered(at + 1, f"answer {at}", **more)) for at in range(0, steps, 2)
    )
    return [each for pair in pairs for each in pair][:steps]


def write(path: Path, lines: list[dict], *, tail: bytes = b"", age: float = 86_400) -> Path:
    """A log that was last written to so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in lines) + tail)
    moment = datetime.now(UTC).timestamp() - age
    os.utime(path, (moment, moment))
    return path


def sessions() -> dict[str, int]:
    """How many messages each session of the store has."""
    store = connect(STORE, create=False)
    try:
        return {row.id: row.messages for row in store.sessions()}
    finally:
        store.close()


def history(session_id: str) -> list[dict]:
    with Session.open(session_id, store=STORE) as session:
        return session.history()


# What becomes of a log


@pytest.mark.parametrize("name", ["claude_code.jsonl", "codex.jsonl", "pi.jsonl", "codex_first_version.jsonl"])
def test_a_log_becomes_the_session_of_its_own_id_with_every_message_of_it(name, run):
    log = read_transcript(FIXTURES / name)
    said = run(FIXTURES / name)
    assert said["sessions"]["new"] >= 1
    assert history(log.session_id) == log.messages


def test_everything_can_be_found_and_the_compactions_of_the_agent_are_those_of_the_session(run):
    log = read_transcript(FIXTURES / "claude_code.jsonl")
    said = run(FIXTURES / "claude_code.jsonl")
    assert said["compactions"] == len(log.compactions) == 1
    assert said["originals"] > 0
    assert said["facts_checked"] >= said["facts_lost"]
    with Session.open(log.session_id, store=STORE) as session:
        (report,) = session.compactions()
        assert "compacted by claude-code itself" in report.reason
        assert WORD in json.dumps(log.messages[: log.compactions[0].at])
        assert any(WORD in hit.text for hit in session.search(WORD))
        assert all(session.recall(each.id) for each in report.archived)


def test_a_log_without_an_id_is_called_as_its_file_is(tmp_path, run):
    lines = [{name: value for name, value in each.items() if name != "sessionId"} for each in talk(2)]
    run(write(tmp_path / "logs" / "lonely.jsonl", lines))
    assert sessions() == {"lonely": 2}


def test_a_session_was_used_last_when_its_log_was_written_last(tmp_path, run):
    said = run(write(tmp_path / "logs" / "a.jsonl", talk(4)))
    assert (said["from"], said["until"]) == ("2026-03-01T10:00:00+00:00", "2026-03-01T10:00:03+00:00")
    store = connect(STORE)
    row = store.session("s-1")
    store.close()
    assert (row.created_at[:19], row.updated_at[:19]) == ("2026-03-01T10:00:00", "2026-03-01T10:00:03")


def test_sub_agents_are_sessions_of_their_own_whether_in_the_same_file_or_in_another(tmp_path, run):
    side = {"isSidechain": True}
    inside = [
        asked(10, "look there", parentUuid=None, agentId="in", **side),
        answered(11, "seen", agentId="in", **side),
    ]
    write(tmp_path / "logs" / "s-1.jsonl", [*talk(2), *inside])
    own = [asked(0, "look here", agentId="out", **side), answered(1, "found", agentId="out", **side)]
    write(tmp_path / "logs" / "s-1" / "subagents" / "agent-out.jsonl", own)
    run(tmp_path / "logs")
    assert sessions() == {"s-1": 2, "s-1/in": 2, "s-1/out": 2}


def test_a_sub_agent_that_has_a_log_of_its_own_is_not_taken_from_that_of_its_caller_too(tmp_path, run):
    side = {"isSidechain": True, "agentId": "out"}
    part = asked(10, "look here", parentUuid=None, **side)
    write(tmp_path / "logs" / "s-1.jsonl", [*talk(2), part])
    write(tmp_path / "logs" / "s-1" / "subagents" / "agent-out.jsonl", [part, answered(11, "found", **side)])
    run(tmp_path / "logs")
    assert sessions() == {"s-1": 2, "s-1/out": 2}


def test_a_sub_agent_of_codex_belongs_to_the_session_that_called_it(tmp_path, run):
    meta = {"session_id": "root", "id": "helper", "parent_thread_id": "root", "cwd": "/srv/app"}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "help"}]}
    rows = [("session_meta", meta), ("response_item", item)]
    lines = [{"timestamp": "2026-03-01T10:00:00Z", "type": kind, "payload": payload} for kind, payload in rows]
    run(write(tmp_path / "sessions" / "2026" / "03" / "01" / "rollout-x.jsonl", lines))
    assert sessions() == {"root/helper": 1}


def test_nothing_beside_the_store_is_touched_since_the_log_may_be_of_any_project(home, run):
    run(FIXTURES)
    assert not (home / ".compactor" / "progress-checkpoint.md").exists()
    assert not (home / ".compactor" / "learned").exists()
    assert not (home / ".compactor" / "agents.db").exists()


# Again and again


def test_a_second_import_reads_nothing_and_says_that_nothing_is_new(run):
    first, before = run(FIXTURES), sessions()
    second = run(FIXTURES)
    assert first["messages"] > 0
    assert (second["sessions"]["new"], second["sessions"]["continued"], second["messages"]) == (0, 0, 0)
    assert second["read"] == []
    assert sessions() == before


def test_a_log_that_has_grown_continues_its_session(tmp_path, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(4))
    run(path)
    write(path, talk(8))
    said = run(path)
    assert (said["sessions"]["continued"], said["messages"]) == (1, 4)
    assert history("s-1") == read_transcript(path).messages


def test_a_log_that_was_rewritten_is_noticed_and_kept_under_another_name(tmp_path, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(4))
    run(path)
    before = history("s-1")
    write(path, [asked(0, "another question"), answered(1, "another answer")])
    assert run(path)["other_ways"] == ["s-1~2"]
    assert history("s-1") == before
    assert history("s-1~2") == read_transcript(path).messages
    assert run(path)["messages"] == 0


def test_a_log_that_was_rewritten_to_the_same_size_and_time_is_noticed(tmp_path, run):
    path = write(tmp_path / "logs" / "a.jsonl", [asked(0, "old words"), answered(1, "yes")])
    run(path)
    times = path.stat()
    path.write_text(path.read_text().replace("old words", "new words"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert run(path)["other_ways"] == ["s-1~2"]


def test_an_older_copy_of_a_log_adds_nothing(tmp_path, run):
    write(tmp_path / "logs" / "a.jsonl", talk(8))
    run(tmp_path / "logs")
    write(tmp_path / "backup" / "a.jsonl", talk(4))
    packed = tmp_path / "backup" / "b.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "logs" / "a.jsonl").read_bytes()))
    assert run(tmp_path / "backup")["messages"] == 0
    assert sessions() == {"s-1": 8}


def test_a_session_that_hooks_follow_is_not_doubled(tmp_path, home, run):
    path = write(tmp_path / "logs" / "s-1.jsonl", talk(6))
    with synced_session(AgentLog(str(home), "s-1", str(path), "claude-code"), load_settings().settings, is_closed=True):
        pass
    run(path)
    assert sessions() == {"s-1": 6}
    write(path, talk(8))
    run(path)
    with synced_session(
        AgentLog(str(home), "s-1", str(path), "claude-code"), load_settings().settings, is_closed=True
    ) as kept:
        assert kept.followed.appended == 0
    assert sessions() == {"s-1": 8}


def test_hooks_go_on_with_an_imported_session_that_is_resumed(tmp_path, home, run):
    path = write(tmp_path / "logs" / "s-1.jsonl", talk(4))
    run(path)
    for steps, new in ((4, 0), (5, 1)):
        write(path, talk(steps))
        with synced_session(AgentLog(str(home), "s-1", str(path), "claude-code"), load_settings().settings) as kept:
            assert kept.followed.appended == new
    assert sessions() == {"s-1": 5}


def test_the_last_turn_of_a_session_that_is_under_way_is_archived_when_it_can_no_longer_grow(tmp_path, run):
    now = datetime.now(UTC).isoformat()
    path = write(tmp_path / "logs" / "a.jsonl", talk(4, timestamp=now), age=0)
    first = run(path)["originals"]
    assert sessions() == {"s-1": 4}
    assert run(path)["read"] == []
    write(path, talk(5, timestamp=now), age=0)
    assert run(path)["originals"] >= 1
    assert first >= 1
    assert sessions() == {"s-1": 5}


def test_a_store_that_was_deleted_is_filled_again(tmp_path, home, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(4))
    run(path)
    shutil.rmtree(home / ".compactor")
    assert run(path)["sessions"]["new"] == 1


# What is asked for


def test_a_dry_run_writes_nothing_and_says_what_would_come(tmp_path, home, run):
    write(tmp_path / "logs" / "a.jsonl", talk(4))
    said = run(tmp_path / "logs", "--dry-run")
    assert (said["sessions"]["new"], said["messages"]) == (1, 4)
    assert list(home.iterdir()) == []


def test_only_logs_since_a_time_are_imported_by_what_they_say_themselves(tmp_path, run):
    write(tmp_path / "logs" / "a.jsonl", talk(4), age=0)
    assert run(tmp_path / "logs", "--since", "2026-03-02")["passed_over"]["older"] == 1
    assert run(tmp_path / "logs", "--since", "2026-03-01")["sessions"]["new"] == 1


def test_logs_that_would_be_deleted_as_too_old_are_not_imported(tmp_path, monkeypatch, run):
    monkeypatch.setenv("COMPACTOR_RETENTION_DAYS", "30")
    old = (datetime.now(UTC) - timedelta(days=60)).isoformat()
    write(tmp_path / "logs" / "a.jsonl", talk(2, timestamp=old))
    assert run(tmp_path / "logs")["passed_over"]["older"] == 1


def test_only_logs_of_work_here_are_imported_when_that_is_asked_for(tmp_path, home, run):
    write(tmp_path / "logs" / "a.jsonl", talk(2, cwd=str(home / "deep"), sessionId="here"))
    write(tmp_path / "logs" / "b.jsonl", talk(2, cwd=f"{home}-not", sessionId="there"))
    said = run(tmp_path / "logs", "--here")
    assert said["passed_over"]["elsewhere"] == 1
    assert sessions() == {"here": 2}


def test_another_store_is_used_when_it_is_named(tmp_path, home, run):
    write(tmp_path / "logs" / "a.jsonl", talk(2))
    run(tmp_path / "logs", "--store", f"sqlite:///{tmp_path}/all/history.db")
    assert (tmp_path / "all" / "history.db").is_file()
    assert not (home / ".compactor").exists()


def test_a_store_in_postgresql_is_filled_and_continued_like_any_other(tmp_path, postgres_url, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(4))
    assert run(path, FIXTURES, "--store", postgres_url)["sessions"]["new"] > 1
    write(path, talk(6))
    said = run(path, FIXTURES, "--store", postgres_url)
    assert (said["sessions"]["new"], said["sessions"]["continued"], said["messages"]) == (0, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no such file or folder"),
        ([".", "--since", "yesterday"], "--since: 'yesterday' is not a date. Try: 20"),
        ([".", "--store", "memory:"], "lost when the command ends"),
        ([".", "--store", "mysql://x"], "is not a store URL"),
    ],
)
def test_wrong_usage_leaves_with_two_and_says_what_to_try(arguments, told, home, run):
    assert told in run(*arguments, code=2)["error"]
    assert list(home.iterdir()) == []


def test_people_read_what_happened_and_what_to_do_next(tmp_path, capfd):
    logs = write(tmp_path / "logs" / "a.jsonl", talk(4)).parent
    (tmp_path / "logs" / "broken.jsonl").write_bytes(BROKEN["no object.jsonl"])
    with pytest.raises(SystemExit) as left:
        main(["import", str(logs), str(FIXTURES / "claude_code.jsonl")])
    out, err = capfd.readouterr()
    assert left.value.code == 1
    assert "Sessions: 3 new, 0 continued, 0 unchanged, 1 failed" in out
    assert "compactions 1 by the agents; their summaries lost" in out
    assert "broken.jsonl: line 2: this is" in out
    assert "compactor recall --search" in out
    assert "new        s-1: 4 messages" in err


def test_on_a_terminal_a_bar_shows_files_messages_and_where_it_is(tmp_path):
    logs = write(tmp_path / "logs" / "a.jsonl", talk(4)).parent
    ours, theirs = pty.openpty()
    ran = subprocess.run(
        [*COMMAND, "import", logs],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "1/1 files, 4 messages" in shown
    assert "a.jsonl" in shown
    assert b"Sessions: 1 new" in ran.stdout


# What is no log, or a broken one

BROKEN = {
    "cut in the middle.jsonl": b'{"type": "user", "mess\n' + json.dumps(asked(1, "x")).encode() + b"\n",
    "damaged.jsonl.gz": gzip.compress(json.dumps(asked(0, "x" * 9_000)).encode())[:-12],
    "no object.jsonl": json.dumps(asked(0, "x")).encode() + b"\n17\n",
}
OTHERS = {
    "empty.jsonl": b"",
    "spaces.jsonl": b" \n\n",
    "binary.jsonl": bytes(range(256)) * 40,
    "text.json": b"Dear diary,\n",
    "settings.json": b'{"theme": "dark"}',
    "messages.json": b'[{"role": "user", "content": "hello"}]',
    "history.jsonl": b'{"display": "hello", "project": "/srv"}\n' * 9,
    "silent.jsonl": b'{"type": "summary", "summary": "Kites", "leafUuid": "u1"}\n',
    "one long line.json": b'{"a": "' + b"x" * 5_000_000 + b'"}',
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_log_is_told_and_counted_while_the_others_are_imported(name, tmp_path, run):
    write(tmp_path / "logs" / "good.jsonl", talk(2))
    (tmp_path / "logs" / name).write_bytes(BROKEN[name])
    said = run(tmp_path / "logs", code=1)
    assert [Path(each["path"]).name for each in said["failed"]] == [name]
    assert said["failed"][0]["reason"]
    assert sessions() == {"s-1": 2}


def test_files_that_are_no_logs_are_passed_over_and_counted_and_are_no_failure(tmp_path, run):
    write(tmp_path / "logs" / "good.jsonl", talk(2))
    for name, content in OTHERS.items():
        (tmp_path / "logs" / name).write_bytes(content)
    said = run(tmp_path / "logs")
    assert (said["passed_over"]["no log"], said["passed_over"]["empty"]) == (len(OTHERS) - 2, 2)
    assert sessions() == {"s-1": 2}


def test_a_line_that_is_half_written_at_the_end_is_left_for_the_next_time(tmp_path, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(4), tail=b'{"type": "user", "message": {"role"')
    run(path)
    assert sessions() == {"s-1": 4}
    write(path, talk(6))
    run(path)
    assert sessions() == {"s-1": 6}


def test_a_line_of_five_megabytes_is_a_line_like_any_other_even_the_first(tmp_path, run):
    run(write(tmp_path / "logs" / "a.jsonl", [asked(0, "long " * 1_000_000), answered(1, "done")]))
    assert history("s-1")[0]["content"] == "long " * 1_000_000


def test_links_that_lead_in_a_circle_end_and_a_log_behind_two_names_is_read_once(tmp_path, run):
    path = write(tmp_path / "logs" / "a.jsonl", talk(2))
    (tmp_path / "logs" / "again").symlink_to(tmp_path / "logs")
    (tmp_path / "logs" / "b.jsonl").symlink_to(path)
    (tmp_path / "logs" / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    assert run(tmp_path / "logs", tmp_path / "logs")["files"] == 1


def test_files_and_folders_that_may_not_be_read_are_told_and_counted_while_others_are_read(locked, monkeypatch, run):
    monkeypatch.chdir("/")
    logs = Path(tempfile.mkdtemp())
    write(logs / "good.jsonl", talk(2))
    write(logs / "shut.jsonl", talk(2)).chmod(0)
    said = run(logs, locked.parent, "--dry-run", "--store", f"sqlite:///{logs}/none.db", code=1)
    shutil.rmtree(logs)
    assert {each["path"] for each in said["failed"]} == {str(logs / "shut.jsonl"), str(locked)}
    assert all("Permission denied" in each["reason"] for each in said["failed"])
    assert said["sessions"]["new"] == 1


# Interruptions, others at the same time, and a full disk


def many(folder: Path, count: int, steps: int = 60) -> Path:
    for number in range(count):
        write(folder / f"{number}.jsonl", talk(steps, sessionId=f"s-{number}"))
    return folder


def test_what_is_interrupted_stays_as_far_as_it_is_done_and_the_next_import_goes_on(tmp_path):
    logs = many(tmp_path / "logs", 40)
    with subprocess.Popen([*COMMAND, "import", logs, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        assert one.stderr is not None
        assert one.stderr.readline().startswith(b"new ")
        one.send_signal(signal.SIGINT)
        out, _ = one.communicate()
    said = json.loads(out)
    done = sessions()
    assert (one.returncode, said["interrupted"]) == (130, True)
    assert said["not_tried"] == 40 - len(done) > 0
    assert set(done.values()) == {60}
    again = subprocess.run([*COMMAND, "import", logs, "--json"], capture_output=True, check=True)
    assert json.loads(again.stdout)["sessions"] == {"new": 40 - len(done), "continued": 0, "unchanged": len(done)}
    assert len(sessions()) == 40


def test_a_killed_import_leaves_whole_sessions_alone(tmp_path):
    logs = many(tmp_path / "logs", 40)
    with subprocess.Popen([*COMMAND, "import", logs], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as one:
        assert one.stderr is not None
        assert one.stderr.readline().startswith(b"new ")
        one.kill()
    assert set(sessions().values()) == {60}
    assert subprocess.run([*COMMAND, "verify"], capture_output=True, check=False).returncode == 0


def test_two_imports_at_once_import_everything_once(tmp_path):
    logs = many(tmp_path / "logs", 12)
    command = [*COMMAND, "import", logs, "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    said = [json.loads(each.communicate()[0]) for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert sum(each["sessions"]["new"] for each in said) == 12
    assert sessions() == {f"s-{number}": 60 for number in range(12)}


def test_a_full_disk_is_told_once_the_store_refuses_and_what_was_done_stays_whole(tmp_path):
    logs = many(tmp_path / "logs", 12, steps=200)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    ran = subprocess.run([*COMMAND, "import", logs, "--json"], capture_output=True, check=False, preexec_fn=fill)
    said = json.loads(ran.stdout)
    assert ran.returncode == 1
    assert said["failed"]
    assert b"Traceback" not in ran.stderr
    assert len(said["failed"]) + said["not_tried"] + said["sessions"]["new"] == 12
    again = subprocess.run([*COMMAND, "import", logs, "--json"], capture_output=True, check=True)
    assert json.loads(again.stdout)["failed"] == []
    assert set(sessions().values()) == {200}


# Whatever a log holds

TEXTS = st.text(min_size=1, max_size=30).filter(str.strip)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)


def imported(paths: list[Path]) -> list:
    """All outcomes of an import into a new store in memory, and the messages of every session."""
    store = connect("memory:")
    outcomes = [
        outcome
        for path in paths
        for outcome in import_logs([str(path)], ImportTarget(store, ".", Settings()), ImportFilter())
    ]
    known = {row.id: [entry.body for entry in store.entries(row.id, kinds=("message",))] for row in store.sessions()}
    store.close()
    return [outcomes, known]


@given(words=st.lists(TEXTS, min_size=1, max_size=8), cut=st.integers(0, 8))
def test_a_log_imported_in_two_parts_is_the_session_it_would_have_been_at_once(words, cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    lines = [(answered if at % 2 else asked)(at, word) for at, word in enumerate(words)]
    part = write(folder / "part" / "a.jsonl", lines[:cut])
    whole = write(folder / "whole" / "a.jsonl", lines)
    assert imported([part, whole])[1] == imported([whole])[1]


FIELDS = [*asked(0, "x"), "message/content", "message/role", "message/id", "agentId", "isCompactSummary", "attachment"]


@given(changes=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(FIELDS), PLAIN), max_size=5))
def test_no_value_in_a_log_ends_an_import(changes, tmp_path_factory):
    lines = talk(6)
    for at, name, value in changes:
        field, _, inner = name.partition("/")
        known = lines[at].get(field)
        lines[at][field] = {**known, inner: value} if inner and isinstance(known, dict) else value
    path = write(tmp_path_factory.mktemp("logs") / "a.jsonl", lines)
    (outcomes, _) = imported([path])
    assert {outcome.status for outcome in outcomes} <= {"read", "failed", "no log"}
    assert all(outcome.reason for outcome in outcomes if outcome.status == "failed")
