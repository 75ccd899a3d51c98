from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from context_compactor.errors import BadSetting
from context_compactor.files import one_writer
from context_compactor.sessions import events
from context_compactor.sessions.events import Bus, JsonlSink, read_log
from context_compactor.store.events import Event, EventType, make_event

NOON = datetime(2026, 1, 26, 12, 0, tzinfo=UTC)


def event(n: int = 0, named: EventType = "session.compacted", **payload: object) -> Event:
    return make_event(named, "run-42", {"n": n, **payload}, NOON)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".compactor" / "logs" / "compaction.json"


def numbers(path: Path, last: int = 10_000) -> list[int]:
    return [line.payload["n"] for line in read_log(path, last)]


def test_a_line_is_an_entry_of_a_compaction_log_and_the_whole_envelope(path):
    seen_events = event(tokens_before=161_204, tool_calls=52, trigger="auto", reason="usage is at 85 %")
    JsonlSink(path).write(seen_events)
    assert json.loads(path.read_text()) == {
        "timestamp": "2026-01-26T12:00:00.000+00:00",
        "session_id": "run-42",
        "event": "compaction",
        "context_before": 161_204,
        "tool_calls": 52,
        "reason": "auto",
        "id": seen_events.id,
        "type": "session.compacted",
        "created_at": "2026-01-26T12:00:00.000+00:00",
        "payload": seen_events.payload,
    }


def test_only_a_compaction_that_was_carried_out_is_called_one(path):
    sink = JsonlSink(path)
    for named in ("threshold.crossed", "summary.applied", "session.compacted", "compaction.failed"):
        sink.write(event(named=named, reason="why"))
    assert [line.event for line in read_log(path)] == [
        "threshold.crossed",
        "summary.applied",
        "compaction",
        "compaction.failed",
    ]
    assert read_log(path)[-1].reason == "why"


def test_the_last_hundred_are_there_and_the_file_never_holds_more_than_twice_as_many(path):
    sink = JsonlSink(path)
    for n in range(1, 650):
        sink.write(event(n))
        assert path.read_bytes().count(b"\n") < 200
    assert numbers(path, last=100) == list(range(550, 650))


def test_appending_does_not_read_what_was_read_before(path, monkeypatch):
    read, real = [], events._read_from
    monkeypatch.setattr(events, "_read_from", lambda *where: read.append(real(*where)) or read[-1])
    sink = JsonlSink(path, keep=1_000)
    for n in range(500):
        sink.write(event(n))
    assert sum(map(len, read)) < 1_000


def test_a_log_that_is_not_there_is_empty(path):
    assert read_log(path) == []
    JsonlSink(path).write(event())
    assert read_log(path, last=0) == []


def test_file_and_folders_are_the_owners_alone(path):
    old = os.umask(0)
    try:
        sink = JsonlSink(path, keep=2)
        for n in range(7):
            sink.write(event(n))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_a_line_that_a_killed_program_left_half_written_costs_no_other(path):
    sink = JsonlSink(path, keep=4)
    sink.write(event(1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert numbers(path) == [1]
    for n in range(2, 5):
        sink.write(event(n))
    assert numbers(path) == [1, 2, 3, 4]
    for n in range(5, 9):
        sink.write(event(n))
    assert numbers(path, last=4) == [5, 6, 7, 8]


def test_a_whole_line_without_its_break_is_kept(path):
    sink = JsonlSink(path)
    sink.write(event(1))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    sink.write(event(2))
    assert numbers(path) == [1, 2]


def test_lines_of_other_programs_are_read_as_far_as_they_are_lines(path):
    path.parent.mkdir(parents=True)
    theirs = {"timestamp": "t", "session_id": "s", "event": "compaction", "context_before": 9, "reason": "manual"}
    path.write_bytes(json.dumps(theirs).encode() + b'\nnonsense\n\xff\xfe\n[1]\n{"timestamp": 7}\n')
    (line,) = read_log(path)
    assert (line.context_before, line.reason, line.id) == (9, "manual", "")


def test_a_link_is_not_followed(path, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine\n" * 300)
    path.parent.mkdir(parents=True)
    path.symlink_to(mine)
    with pytest.raises(OSError, match="compaction"):
        JsonlSink(path).write(event())
    assert mine.read_text() == "mine\n" * 300


def test_keeping_nothing_is_refused():
    with pytest.raises(BadSetting, match="keep: 0"):
        JsonlSink("x", keep=0)


def test_a_folder_that_cannot_be_written_is_a_failure_of_the_sink_alone(locked):
    bus, seen_events = Bus(), []
    bus.subscribe(JsonlSink(locked / "logs" / "compaction.json"))
    bus.subscribe(seen_events.append)
    bus.emit(event())
    assert len(seen_events) == 1
    assert "compaction.json" in bus.failures[0].sink
    assert "Permission denied" in bus.failures[0].last_error


def test_a_log_that_another_program_keeps_is_a_failure_of_the_sink_alone(path, monkeypatch):
    monkeypatch.setattr(events, "_LONGEST_WAIT", 0.01)
    bus = Bus()
    bus.subscribe(JsonlSink(path))
    bus.emit(event(1))
    with one_writer(path.parent):
        bus.emit(event(2))
    bus.emit(event(3))
    assert bus.failures[0].count == 1
    assert numbers(path) == [1, 3]


SCRIPT = """
import os, resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from context_compactor.sessions.events import Bus, JsonlSink
from context_compactor.store.events import make_event

path, keep = Path(sys.argv[1]), int(sys.argv[2])

def write(sink, who, n, size=0):
    sink(make_event("job.queued", f"run-{who}", {"n": n, "fill": "x" * size}, datetime.now(UTC)))
"""


def run(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT + script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


TWENTY = """
for who in range(20):
    if os.fork() == 0:
        sink = JsonlSink(path, keep)
        for n in range(30):
            write(sink.write, who, n)
        os._exit(0)
assert all(os.wait()[1] == 0 for _ in range(20))
"""


def test_twenty_programs_at_once_lose_no_line_and_keep_their_order(path):
    with run(TWENTY, path, 1_000) as child:
        assert child.wait() == 0
    lines = read_log(path, last=10_000)
    assert len(lines) == len({line.id for line in lines}) == 600
    assert path.read_bytes().count(b"\n") == 600
    for who in range(20):
        assert [line.payload["n"] for line in lines if line.session_id == f"run-{who}"] == list(range(30))


def test_twenty_programs_that_trim_one_log_leave_it_whole(path):
    with run(TWENTY, path, 15) as child:
        assert child.wait() == 0
    lines = path.read_bytes().splitlines()
    assert 15 <= len(lines) < 30
    assert len(read_log(path)) == len(lines)
    assert {item.name for item in path.parent.iterdir()} == {"compaction.json", ".lock"}


@pytest.mark.parametrize("keep", [3, 100_000])
def test_whoever_is_killed_while_writing_every_written_line_is_there(path, keep):
    endless = "for n in range(10**9):\n    write(JsonlSink(path, keep).write, 0, n, 3_000)\n    print(n, flush=True)\n"
    for round_ in range(5):
        with run(endless, path, keep) as child:
            assert child.stdout is not None
            for _ in range(5 + 7 * round_):
                written = int(child.stdout.readline())
            child.kill()
            written = max([written, *map(int, child.stdout.read().split())])
        assert written in numbers(path)
        JsonlSink(path, keep).write(event(-1))
        assert numbers(path)[-1] == -1
        if keep > 1_000:
            assert numbers(path)[: written + 1] == list(range(written + 1))
        path.unlink()


def test_what_a_killed_program_left_is_taken_away_when_the_log_is_trimmed(path):
    sink = JsonlSink(path, keep=1)
    sink.write(event(1))
    (path.parent / ".0123456789abcdef.part").write_text("half")
    sink.write(event(2))
    assert {item.name for item in path.parent.iterdir()} == {"compaction.json", ".lock"}


def test_a_full_disk_leaves_whole_lines_and_no_error_for_the_emitter(path):
    full = """
bus = Bus()
bus.subscribe(JsonlSink(path, keep))
for n in range(5):
    write(bus.emit, 0, n)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 150, resource.RLIM_INFINITY))
for n in range(5, 8):
    write(bus.emit, 0, n)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
write(bus.emit, 0, 8)
print(bus.failures[0].count)
"""
    with run(full, path, 100) as child:
        assert child.communicate()[0] == "3\n"
    assert numbers(path) == [0, 1, 2, 3, 4, 8]
    assert path.read_bytes().count(b"\n") == 6
