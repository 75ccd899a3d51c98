from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from context_compactor.archive.export import export_folder, read_export, session_folder
from context_compactor.archive.originals import Original
from context_compactor.errors import CompactorError
from context_compactor.files import make_private_folder, one_writer, write_atomically

AT = "2025-01-15T14:30:00Z"
FILES = ["file-summaries.md", "manifest.json", "subagent-outputs.md", "tool-calls.json"]

HOSTILE = st.text("`#{}\n\r\t\\\"' ab🙂\u2028\ud800", max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": HOSTILE}), max_size=3)
IDS = st.builds("{}_{:03d}".format, st.sampled_from(["tool", "file", "agent", "turn"]), st.integers(0, 2000))
ORIGINALS = st.builds(
    Original, IDS, st.just("log"), HOSTILE, st.integers(0, 99), HOSTILE | BLOCKS | JSON, st.just("recall it")
)


def original(ref: str, value: object = "text", summary: str = "Read src/auth/login.ts") -> Original:
    return Original(ref, "code file", summary, 1200, value, f'recall("{ref}")')


SOME = [
    original("tool_001", "plain\ntext"),
    original("file_002", [{"type": "text", "text": "import jwt"}]),
    original("agent_003", "## Result\n```ts\nfoo()\n```\n"),
    original("turn_004", [{"role": "user", "content": "go"}]),
]


def values(originals: list[Original]) -> dict[str, object]:
    return {each.id: each.value for each in originals}


def shown(value: object) -> str:
    """A value with its order of keys, and 1 told from 1.0 and True."""
    return json.dumps(value)


def test_the_folder_holds_the_four_files_and_nothing_else(tmp_path):
    exported = export_folder(tmp_path / "deep" / "context-archive", "sess_20250115_143000", SOME, AT)
    assert exported.folder == tmp_path / "deep" / "context-archive" / "sess_20250115_143000"
    assert sorted(path.name for path in exported.folder.iterdir()) == FILES
    assert sorted(path.name for path in exported.paths) == FILES
    assert exported.count == 4


def test_the_manifest_says_of_each_original_what_it_is_and_where_it_stands(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    manifest = json.loads((place / "manifest.json").read_bytes())
    assert list(manifest) == ["session_id", "archived_at", "items"]
    assert (manifest["session_id"], manifest["archived_at"]) == ("s", AT)
    assert manifest["items"][0] == {
        "id": "tool_001",
        "type": "tool_call",
        "summary": "Read src/auth/login.ts",
        "file": "tool-calls.json",
        "key": "tool_001",
        "recovery_hint": 'recall("tool_001")',
    }
    assert [(item["type"], item["file"]) for item in manifest["items"][1:]] == [
        ("file_content", "tool-calls.json"),
        ("subagent_output", "subagent-outputs.md"),
        ("turn", "tool-calls.json"),
    ]


def test_results_files_and_turns_are_read_in_full_from_the_json_by_their_key(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    calls = json.loads((place / "tool-calls.json").read_bytes())
    assert calls == values([SOME[0], SOME[1], SOME[3]])


def test_what_a_subagent_answered_stands_as_text_between_fences_longer_than_its_own(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    page = (place / "subagent-outputs.md").read_text()
    assert "## agent_003: Read src/auth/login.ts\n" in page
    assert "\n````text\n## Result\n```ts\nfoo()\n```\n\n````\n" in page


def test_a_file_is_summed_up_by_whoever_exports(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT, summarize=lambda each: f"an outline of {each.id}").folder
    page = (place / "file-summaries.md").read_text()
    assert "## file_002: Read src/auth/login.ts\n" in page
    assert "\n```text\nan outline of file_002\n```\n" in page
    assert "tool-calls.json, key file_002" in page


def test_no_summary_can_end_its_line_or_pose_as_another_section(tmp_path):
    sly = original("agent_001", "one", summary="a\n\n## agent_009: b\n\n```text\nforged\n```")
    place = export_folder(tmp_path, "s", [sly, original("agent_002", "two")], AT).folder
    assert read_export(place).values == {"agent_001": "one", "agent_002": "two"}


@given(st.lists(ORIGINALS, max_size=6, unique_by=lambda each: each.id))
@example([original("agent_001", "\n## agent_002: x\n\ny\n\n```text\nz\n```\n"), original("agent_002", "")])
@example([original("agent_001", [{"text": "other order", "type": "text"}])])
def test_every_value_is_read_back_byte_for_byte(originals):
    with tempfile.TemporaryDirectory() as folder:
        place = export_folder(Path(folder), "s", originals, AT).folder
        export = read_export(place)
    assert [item.id for item in export.manifest.items] == [each.id for each in originals]
    assert [item.summary for item in export.manifest.items] == [each.summary for each in originals]
    assert shown(export.values) == shown(values(originals))


@given(st.lists(ORIGINALS, max_size=8), st.integers(0, 8))
def test_exporting_bit_by_bit_is_exporting_at_once(originals, cut):
    with tempfile.TemporaryDirectory() as folder:
        once = export_folder(Path(folder), "once", originals, AT).folder
        export_folder(Path(folder), "twice", originals[:cut], AT)
        twice = export_folder(Path(folder), "twice", originals[cut:], AT).folder
        for name in ("tool-calls.json", "file-summaries.md", "subagent-outputs.md"):
            assert (twice / name).read_bytes() == (once / name).read_bytes()
        assert shown(read_export(twice).values) == shown(read_export(once).values)


def test_an_original_that_is_exported_again_takes_the_place_of_the_first(tmp_path):
    export_folder(tmp_path, "s", SOME, AT)
    place = export_folder(tmp_path, "s", [original("agent_003", "redacted")], "later").folder
    export = read_export(place)
    assert export.values["agent_003"] == "redacted"
    assert export.manifest.archived_at == "later"
    assert list(export.values) == [each.id for each in SOME]


def test_an_export_that_adds_nothing_writes_nothing(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    before = {path: path.stat().st_ino for path in place.iterdir()}
    export_folder(tmp_path, "s", SOME, "later")
    assert {path: path.stat().st_ino for path in place.iterdir()} == before


def test_a_session_without_originals_has_a_folder_that_can_be_read(tmp_path):
    place = export_folder(tmp_path, "s", [], AT).folder
    assert sorted(path.name for path in place.iterdir()) == FILES
    assert json.loads((place / "tool-calls.json").read_bytes()) == {}
    assert read_export(place).values == {}


def test_files_and_folders_are_their_owners_alone(tmp_path):
    exported = export_folder(tmp_path / "a" / "b", "s", SOME, AT)
    for folder in (exported.folder, tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in (*exported.paths, tmp_path / "a" / "b" / ".lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


ODD_IDS = ["", ".", "..", "../../etc", "a/b", "a\\b", "a\0b", "A", "a", "ä", "a\u0308", "🙂", "\ud800", "x" * 300]
ODD_IDS += ["x" * 301, "a.", "-rf", ".lock", "~", "con\n", "con", "a b", "a-b", "a~b"]


def test_any_session_id_gives_one_safe_folder_and_no_two_the_same(tmp_path):
    folders = [session_folder(tmp_path, session_id) for session_id in ODD_IDS]
    assert len({str(folder) for folder in folders}) == len(ODD_IDS)
    for session_id in ODD_IDS:
        place = export_folder(tmp_path, session_id, [original("tool_001", session_id)], AT).folder
        assert place.parent == tmp_path
        assert read_export(place).manifest.session_id == session_id


@given(st.text(), st.text())
def test_two_ids_share_a_folder_only_when_they_are_one(one, other):
    folder = Path("archive")
    assert (session_folder(folder, one) == session_folder(folder, other)) == (one == other)
    assert session_folder(folder, one).parent == folder
    assert len(session_folder(folder, one).name) <= 100


class Killed(BaseException):
    pass


@contextmanager
def killed_at(step: int) -> Iterator[None]:
    """From the given step of writing on nothing more happens, nor does anybody clean up."""
    steps = count()
    sync, move = os.fsync, Path.replace

    def next_step() -> None:
        if next(steps) >= step:
            raise Killed

    def fsync(descriptor: int) -> None:
        next_step()
        sync(descriptor)

    def replace(path: Path, target: Path) -> Path:
        next_step()
        return move(path, target)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "replace", replace)
        monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize("step", range(12))
def test_killed_at_any_step_the_folder_is_what_it_was_or_what_it_becomes(tmp_path, step):
    more = [original("tool_011", "new"), original("file_012", "new"), original("agent_013", "new")]
    place = export_folder(tmp_path, "s", SOME, AT).folder
    with killed_at(step):
        export_folder(tmp_path, "s", more, "later")
    assert read_export(place).values in (values(SOME), values([*SOME, *more]))
    last = original("tool_020", "after")
    export_folder(tmp_path, "s", [*more, last], "later")
    assert read_export(place).values == values([*SOME, *more, last])
    assert sorted(path.name for path in place.iterdir()) == FILES


def test_what_was_written_before_a_kill_and_never_named_is_not_kept(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    with killed_at(6):
        export_folder(tmp_path, "s", [original("tool_011", "orphan"), original("agent_012", "orphan")], "later")
    assert "orphan" in (place / "tool-calls.json").read_text()
    export_folder(tmp_path, "s", [original("tool_020", "x")], "later")
    assert "orphan" not in (place / "tool-calls.json").read_text() + (place / "subagent-outputs.md").read_text()


WRITER = """
import sys
from pathlib import Path
from context_compactor.archive.originals import Original
from context_compactor.archive.export import export_folder
folder, first = Path(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + int(sys.argv[3])):
    text, refs = str(number) * 5_000, [f"{kind}_{number:03d}" for kind in ("tool", "file", "agent")]
    export_folder(folder, "s", [Original(ref, "log", "", 0, text, "") for ref in refs], "now")
    print(number, flush=True)
"""


def writer(folder: Path, first: int, rounds: int) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-c", WRITER, str(folder), str(first), str(rounds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE)


def test_a_process_that_is_killed_leaves_what_it_said_it_wrote(tmp_path):
    result: list[int] = []
    for first in (0, 1000, 2000):
        with writer(tmp_path, first, 1000) as running:
            assert running.stdout is not None
            result += [int(running.stdout.readline()) for _ in range(5)]
            running.send_signal(signal.SIGKILL)
        found = read_export(session_folder(tmp_path, "s")).values
        assert {f"{kind}_{number:03d}" for number in result for kind in ("tool", "file", "agent")} <= set(found)
        assert all(value == str(int(ref.split("_")[1])) * 5_000 for ref, value in found.items())


def test_several_processes_at_once_lose_nothing_and_can_be_read_meanwhile(tmp_path):
    export_folder(tmp_path, "s", [], AT)
    writers = [writer(tmp_path, 100 * number, 15) for number in range(3)]
    while any(each.poll() is None for each in writers):
        read_export(session_folder(tmp_path, "s"))
    for each in writers:
        each.communicate()
        assert each.returncode == 0
    assert len(read_export(session_folder(tmp_path, "s")).values) == 3 * 15 * 3


def test_whoever_waits_too_long_for_another_writer_is_told_so(tmp_path):
    with (
        one_writer(tmp_path),
        pytest.raises(CompactorError, match=r"another process has been writing.*Try"),
        one_writer(tmp_path, wait_seconds=0),
    ):
        pass


def test_a_full_disk_leaves_what_was_there_and_names_the_path_and_the_reason(tmp_path, monkeypatch):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    before = {path.name: path.read_bytes() for path in place.iterdir()}

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CompactorError, match=r"tool-calls\.json: No space left on device"):
        export_folder(tmp_path, "s", [original("tool_009")], AT)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


def test_a_place_that_cannot_be_written_is_named_with_the_reason(locked):
    with pytest.raises(CompactorError, match=r"locked.*Permission denied"):
        export_folder(locked / "context-archive", "s", SOME, AT)


def test_a_file_where_a_folder_should_be_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CompactorError, match=r"file: File exists"):
        export_folder(tmp_path / "file" / "archive", "s", SOME, AT)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("manifest.json", b"{", "is not a manifest"),
        ("manifest.json", b"\xff", "is not a manifest"),
        ("manifest.json", b'{"session_id": "s"}', "is not a manifest"),
        ("tool-calls.json", b"{}", "is not laid out"),
        ("tool-calls.json", b"{\n\n}\n", "names tool_001"),
        ("tool-calls.json", b'{\n"tool_001": {\n}\n', "names file_002"),
        ("subagent-outputs.md", b"# Sub-agent outputs\n", "names agent_003"),
        ("subagent-outputs.md", b"# Sub-agent outputs\nhello\n", "is not laid out"),
        ("subagent-outputs.md", b"# S\n\n## agent_003: x\n\ny\n\n```text\nz\n", "does not end"),
        ("file-summaries.md", b"# File summaries\n", "names file_002"),
    ],
)
def test_a_file_that_no_export_wrote_is_named_and_left_as_it_is(tmp_path, name, content, why):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    (place / name).write_bytes(content)
    with pytest.raises(CompactorError, match=rf"{why}.*Try: remove"):
        read_export(place)
    with pytest.raises(CompactorError, match=rf"{why}.*Try: remove"):
        export_folder(tmp_path, "s", [], AT)
    assert (place / name).read_bytes() == content


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tool-calls.json", b'"plain\\ntext"', b'"plain\\u000atext"'),
        ("tool-calls.json", b'"plain\\ntext"', b"plain"),
        ("subagent-outputs.md", b"````text", b"````prose"),
        ("subagent-outputs.md", b"foo()", b"\xff"),
    ],
)
def test_a_value_that_is_not_written_as_an_export_writes_it_is_not_believed(tmp_path, name, old, new):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    content = (place / name).read_bytes()
    assert old in content
    (place / name).write_bytes(content.replace(old, new))
    with pytest.raises(CompactorError, match=rf"{name} cannot be used: (tool_001|agent_003): "):
        read_export(place)


def test_giving_everything_again_mends_what_was_deleted(tmp_path):
    place = export_folder(tmp_path, "s", SOME, AT).folder
    (place / "tool-calls.json").unlink()
    with pytest.raises(CompactorError, match="names tool_001"):
        export_folder(tmp_path, "s", [], AT)
    export_folder(tmp_path, "s", SOME, AT)
    assert read_export(place).values == values(SOME)


def test_a_folder_of_another_session_is_not_written_to(tmp_path):
    export_folder(tmp_path, "one", SOME, AT)
    (tmp_path / "one").rename(tmp_path / "other")
    with pytest.raises(CompactorError, match="of the session 'one', not 'other'"):
        export_folder(tmp_path, "other", SOME, AT)


def test_a_folder_without_an_export_is_named(tmp_path):
    with pytest.raises(CompactorError, match="there is no export in"):
        read_export(tmp_path)


@pytest.mark.parametrize("ref", ["tool_1", "note_001", "../tool_001", "tool_٣٣٣", ""])
def test_an_id_that_is_none_is_refused(tmp_path, ref):
    with pytest.raises(CompactorError, match="an id is"):
        export_folder(tmp_path, "s", [original(ref)], AT)


def test_a_value_that_is_not_json_is_refused_by_its_id(tmp_path):
    with pytest.raises(CompactorError, match="cannot export tool_001: not JSON"):
        export_folder(tmp_path, "s", [original("tool_001", object())], AT)


def test_a_private_file_loses_the_rights_of_others(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_atomically(path, b"new", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_with_the_longest_name_can_be_written(tmp_path):
    write_atomically(tmp_path / ("x" * 255), b"new", private=False)
    assert (tmp_path / ("x" * 255)).read_bytes() == b"new"


def test_a_folder_that_is_there_keeps_its_mode(tmp_path):
    (tmp_path / "a").mkdir(mode=0o755)
    (tmp_path / "a").chmod(0o755)
    make_private_folder(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755
