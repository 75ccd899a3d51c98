"""What a user has on disk, read into conversations."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from context_compactor.errors import BadInput, BadTranscript
from context_compactor.evaluation import inputs
from context_compactor.evaluation.inputs import (
    find_files,
    load,
    project_of,
    read_conversations,
    sampled,
    stem,
    survey_files,
)
from tests.evaluation.talks import SilentProgress, long_messages, record

SHIPPED = Path(__file__).parents[2] / "examples" / "demo_session.jsonl.gz"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def surveyed(*paths):
    return survey_files(find_files([str(path) for path in paths]), 1, SilentProgress())


def test_a_folder_gives_its_json_files_in_order_and_each_once(tmp_path):
    write(tmp_path / "b" / "two.jsonl", "{}")
    write(tmp_path / "a.json", "{}")
    write(tmp_path / "notes.txt", "no")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = find_files([str(tmp_path), str(tmp_path / "a.json")])
    assert [Path(path).name for path in found.paths] == ["a.json", "two.jsonl"]


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        find_files([str(tmp_path / "none")])


def test_a_pipe_is_refused_since_it_cannot_be_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert find_files([str(tmp_path)]).paths == ()
    with pytest.raises(BadInput, match="neither a regular file nor a folder"):
        find_files([str(tmp_path / "pipe.json")])


def test_a_folder_that_cannot_be_opened_is_named(locked):
    assert "locked" in find_files([str(locked.parent)]).skipped[0].path


def test_a_recorded_conversation_keeps_its_source_project_usages_and_compactions(tmp_path):
    messages = [{**message} for message in long_messages()]
    messages[1]["usage"] = {"input": 10, "output": 5}
    events = [{"type": "compaction", "at": 5, "summary": "So far so good."}]
    path = tmp_path / "hand.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(record(messages, events=events)).encode()))
    (talk,) = read_conversations(str(path))
    conversation = talk.conversation
    assert (conversation.id, conversation.source, conversation.project) == ("hand/shop", "hand", "hand")
    assert conversation.provider == "anthropic"
    assert [(event.at, event.summary) for event in conversation.events] == [(5, "So far so good.")]
    assert conversation.usages[1]["input"] == 10
    assert "usage" not in conversation.messages[1]


def test_plain_messages_belong_to_the_folder_they_are_in(tmp_path):
    (talk,) = read_conversations(write(tmp_path / "shop" / "one.json", long_messages()))
    assert (talk.conversation.project, talk.conversation.id) == ("shop", "one")


def test_responses_items_become_chat_messages_with_their_places_moved(tmp_path):
    items = [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
    ]
    (talk,) = read_conversations(write(tmp_path / "items.json", items))
    assert [message["role"] for message in talk.conversation.messages] == ["user", "assistant", "tool"]
    assert talk.conversation.provider == "openai"
    assert talk.transcript.dialect == "openai-responses"


@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/home/ann/shop", "shop"),
        ("/home/ann/shop/.worktrees/7", "shop"),
        ("/home/ann/shop/.claude/worktrees/fix", "shop"),
        ("C:\\work\\shop", "shop"),
        ("/", ""),
        ("", ""),
    ],
)
def test_all_work_trees_of_a_repository_are_one_project(folder, project):
    assert project_of(folder) == project


def test_endings_are_taken_off_a_name():
    assert [stem(name) for name in ("a/b.jsonl.gz", "b.json", "b.c.ndjson", ".json")] == ["b", "b", "b.c", ".json"]


def test_an_enormous_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "LARGEST", 100)
    with pytest.raises(BadTranscript, match="more than the"):
        list(read_conversations(write(tmp_path / "long.json", long_messages())))
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(b"[" + b" " * 10_000 + b"]"))
    with pytest.raises(BadTranscript, match="more than the"):
        list(read_conversations(str(packed)))


def test_a_survey_names_what_it_skips_and_counts_what_is_too_short(tmp_path):
    write(tmp_path / "good.json", long_messages())
    write(tmp_path / "broken.jsonl", '{"role": "user"\n{}')
    write(tmp_path / "other.json", {"name": "a package"})
    write(tmp_path / "short.json", [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])
    found = surveyed(tmp_path)
    assert (len(found.places), len(found.usable)) == (2, 1)
    assert [Path(item.path).name for item in found.skipped] == ["broken.jsonl", "other.json"]
    assert all(item.reason and "Try" not in item.reason for item in found.skipped)


def test_a_file_that_is_cut_off_gives_what_stands_before_the_cut(tmp_path):
    lines = json.dumps(record()) + "\n" + json.dumps(record(id="two"))[:-40]
    found = surveyed(write(tmp_path / "cut.jsonl", lines))
    assert [place.id for place in found.places] == ["hand/shop"]
    assert found.skipped[0].reason.startswith("read only in part")
    assert [talk.conversation.id for talk in load(found.places)] == ["hand/shop"]


def test_names_of_three_projects_are_common_and_of_two_are_not(tmp_path):
    for project in ("one", "two"):
        write(tmp_path / project / "talk.json", long_messages())
    assert surveyed(tmp_path).common == frozenset()
    write(tmp_path / "three" / "talk.json", long_messages())
    assert "roundPriceUp" in surveyed(tmp_path).common


def test_conversations_are_taken_step_by_step_and_not_too_many_by_themselves(tmp_path):
    lines = "\n".join(json.dumps(record(id=f"talk/{number}")) for number in range(4))
    found = surveyed(write(tmp_path / "many.jsonl", lines))
    assert [place.id for place in sampled(found, 3)[0]] == ["talk/0", "talk/3"]
    assert sampled(found, None) == (found.usable, 1)
    many = type(found)(1, found.places * 30, (), ())
    assert len(sampled(many, None)[0]) == 40
    assert sampled(many, None)[1] == 3


def test_the_shipped_session_is_read():
    found = surveyed(SHIPPED)
    assert [(place.source, place.cuts) for place in found.places] == [("demo_session", 2)]
