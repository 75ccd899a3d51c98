"""While calls of tools wait for their results nothing is compacted, and how full the context is is told as it is."""

from __future__ import annotations

import json

import pytest

from tests.server.filling import WIDE, Raw, Talk
from tests.server.running import Running


def calls(count: int) -> Raw:
    """A step that calls tools, with long arguments."""
    return {
        "role": "assistant",
        "content": "Writing several files.",
        "tool_calls": [
            {
                "id": f"call_{at}",
                "type": "function",
                "function": {
                    "name": "write_file",
                    "arguments": json.dumps({"path": f"src/{at}.py", "text": f"value_{at} = {at}\n" * 400}),
                },
            }
            for at in range(count)
        ],
    }


def result(at: int) -> Raw:
    return {"role": "tool", "tool_call_id": f"call_{at}", "content": f"wrote src/{at}.py"}


def shares(talk: Talk) -> set[float]:
    """How full the session is by every route that says so."""
    listed = next(each for each in talk.server.get("/v1/sessions").json["sessions"] if each["id"] == talk.name)
    opened = talk.server.post("/v1/sessions", {"id": talk.name, "window": talk.seen["window"]}).json
    asked = talk.server.post(f"{talk.path}/messages", {"messages": []}).json
    return {round(each["share"], 6) for each in (talk.seen, listed, opened, asked)}


@pytest.mark.parametrize("window", [24_000, 60_000])
def test_an_append_that_leaves_calls_open_tells_how_full_the_context_is_now(server: Running, window: int):
    talk = Talk(server, window=window)
    before = talk.turns(20)["share"]
    answer = talk.say(calls(3))
    assert answer["share"] > before + 0.05
    assert shares(talk) == {round(answer["share"], 6)}
    answer = talk.say(result(0))
    assert shares(talk) == {round(answer["share"], 6)}
    answer = talk.say(result(1), result(2))
    assert shares(talk) == {round(answer["share"], 6)}


def test_a_level_that_was_crossed_while_calls_waited_is_answered_with_their_results(server: Running):
    talk = Talk(server, window=WIDE)
    talk.fill(0.78)
    answer = talk.say(calls(1))
    assert 0.80 < answer["share"] < 0.95
    assert talk.jobs == []
    talk.say(result(0))
    assert [job.state for job in talk.jobs] == ["waiting"]
