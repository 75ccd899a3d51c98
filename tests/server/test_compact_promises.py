"""What is promised of compaction over HTTP, by itself and on request, sentence by sentence.

`tests/jobs/README.md` is the map from the sentences to the tests here and elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.failures.served import WIRES, body_text, says, serving
from tests.server.filling import Raw, Talk, idle
from tests.server.running import Running, running
from tests.server.streams import following
from tests.sessions.summarizing import FIRST, steps
from tests.sessions.talk import illegal
from tests.summarize.samples import GOOD

OPENAI = next(wire for wire in WIRES if wire.name == "openai")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.chdir(tmp_path)
    with running(tmp_path, workers=2) as made:
        yield made


def called(number: int, name: str, said: str, **arguments: str) -> list[Raw]:
    """A call of a tool and its result."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": said},
    ]


def working(talk: Talk) -> None:
    """Work in which things are decided, files are changed and errors are met, with much talk behind it."""
    talk.say(
        {"role": "system", "content": "You are a careful engineer."},
        {"role": "user", "content": "Add token rotation to src/auth/jwt.py. We decided to keep HS256, not RS256."},
        *called(1, "Read", "def rotate(token):\n    return sign(token, jti=uuid4())\n", file_path="src/auth/jwt.py"),
        *called(2, "Bash", "FAILED tests/test_jwt.py::test_rotate - KeyError: 'jti'\n1 failed", command="pytest -q"),
        *called(
            3, "Edit", "done", file_path="src/auth/jwt.py", old_string="sign(token)", new_string="sign(token, jti)"
        ),
        *called(4, "Bash", "12 passed in 0.31s", command="pytest -q"),
    )
    talk.fill(0.60)


def text_of(talk: Talk) -> str:
    return "\n".join(str(message.get("content")) for message in talk.context)


# Automatic


def test_the_token_count_is_monitored_during_conversation(server: Running):
    talk = Talk(server)
    counts = []
    for _ in range(4):
        answer = talk.turns(2)
        assert answer["tokens"] == talk.seen["tokens"]
        counts.append(answer["tokens"])
    assert counts == sorted(set(counts))
    assert server.get("/v1/sessions").json["sessions"][0]["tokens"] == counts[-1]


def test_it_is_triggered_when_approaching_model_auto_compact_token_limit(server: Running):
    talk = Talk(server, window=200_000, model_auto_compact_token_limit=6_000)
    while not talk.jobs:
        assert talk.turns(2)["tokens"] < 7_000
    idle(server)
    (report,) = talk.compactions
    assert report["trigger"] == "threshold"
    assert 5_000 < report["tokens_before"] < 7_000
    assert talk.seen["tokens"] < 6_000


@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_the_threshold_is_configurable(server: Running, threshold: float):
    levels = [{"level": "soft", "threshold": threshold, "target": 0.3}]
    talk = Talk(server, levels=levels)
    while not talk.jobs:
        share = talk.turns(2)["share"]
    assert threshold <= share < threshold + 0.03
    idle(server)
    assert len(talk.compactions) == 1


# On request


def test_compact_works_at_any_fill(server: Running):
    talk = Talk(server)
    working(talk)
    got = talk.compact()
    assert got.status == 200
    assert got.json["compacted"]
    assert got.json["report"]["trigger"] == "manual"
    assert illegal(talk.context) == []


def test_older_messages_are_summarized_and_replaced_and_the_last_ones_stay_intact(server: Running):
    talk = Talk(server)
    working(talk)
    before = talk.context
    done = talk.compact(level="aggressive").json
    after = talk.context
    assert len(after) == len(before) - done["messages_removed"]
    assert after[-5:] == before[-5:]
    summaries = [message for message in after if "[Context record." in str(message["content"])]
    assert [message["role"] for message in summaries] == ["user"]
    assert after.index(summaries[0]) == 1  # behind the instructions
    assert after[0] == before[0]


@pytest.mark.parametrize("count", [1, 8])
def test_how_many_turns_are_preserved_is_configurable_for_a_session_and_for_one_request(server: Running, count: int):
    for name, settings, body in (
        ("session", {"preserve_recent_turns": count}, {}),
        ("request", {}, {"preserve": count}),
    ):
        talk = Talk(server, f"{name}-{count}", **settings)
        working(talk)
        before = talk.context
        assert talk.compact(target_tokens=5_000, **body).json["compacted"]
        assert talk.context[-count:] == before[-count:]


def test_file_paths_key_decisions_code_snippets_and_errors_with_their_solutions_are_preserved(server: Running):
    talk = Talk(server)
    working(talk)
    done = talk.compact(level="emergency").json
    seen = text_of(talk)
    assert "src/auth/jwt.py" in seen
    assert "keep HS256, not RS256" in seen
    assert "KeyError: 'jti'" in seen
    kinds = {fact["kind"] for fact in server.get(f"{talk.path}/facts").json["facts"]}
    assert kinds >= {"decision", "failure"}
    originals = [server.get(f"{talk.path}/archive/{item['id']}").json["text"] for item in done["report"]["archived"]]
    assert any("return sign(token, jti=uuid4())" in original for original in originals)


def test_the_status_says_how_many_messages_and_the_token_count_before_and_after(server: Running):
    talk = Talk(server)
    working(talk)
    before = talk.seen["tokens"]
    done = talk.compact().json
    assert done["tokens_before"] == before
    assert done["tokens_after"] == talk.seen["tokens"]
    assert done["tokens_saved"] == before - done["tokens_after"] > 0
    assert done["messages_removed"] == done["report"]["messages_removed"] > 0


def test_a_conversation_too_short_is_answered_gracefully(server: Running):
    talk = Talk(server)
    for messages in ([], [{"role": "user", "content": "Why does the login test fail?"}]):
        talk.say(*messages)
        got = talk.compact()
        assert got.status == 200
        assert (got.json["compacted"], got.json["messages_removed"], got.json["tokens_saved"]) == (False, 0, 0)
        assert got.json["reason"]
    assert talk.types() == []


# Around it


def test_a_compaction_event_is_emitted_for_ui_update(server: Running):
    talk = Talk(server)
    working(talk)
    with following(server, f"?session_id={talk.name}&types=session.compacted") as stream:
        done = talk.compact().json
        found = stream.told()[0].json
    assert found["session_id"] == talk.name
    assert found["payload"]["tokens_saved"] == done["tokens_saved"]
    assert found["payload"]["messages_removed"] == done["messages_removed"]


def test_compaction_history_is_kept_with_the_session(server: Running):
    talk = Talk(server)
    made: list[Any] = []
    for _ in range(3):
        working(talk)
        made.append(talk.compact(level="aggressive").json["report"])
    assert talk.compactions == made
    totals = talk.seen["totals"]
    assert totals["compactions"] == 3
    assert totals["tokens_saved"] == sum(report["tokens_saved"] for report in made)


def test_the_compaction_prompt_is_configurable(server: Running, monkeypatch: pytest.MonkeyPatch):
    """The model is the server's own, the words are the session's."""
    prompt = "Summarize what matters to a pirate.\n\nCONVERSATION TO SUMMARIZE:\n{messages}\n"
    with serving(says(OPENAI, GOOD)) as provider:
        monkeypatch.setenv("COMPACTOR_SUMMARIZER", f"{provider.url}/v1#small")
        monkeypatch.setenv("COMPACTOR_SUMMARIZER_WINDOW", "100000")
        talk = Talk(server, window=60_000, compact_prompt=prompt)
        talk.say(*FIRST, *steps(0, 34))
        done = talk.compact().json
        assert done["compacted"]
        assert provider.bodies
        assert any("Summarize what matters to a pirate." in body_text(body) for body in provider.bodies)
    assert [call["outcome"] for call in done["report"]["model_calls"]]
