from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.summarize.request import (
    QuotedTurn,
    cut_chunks,
    framed,
    map_parallel,
    mark_for,
    measure_coverage,
    quote_turns,
    quoted,
)
from tests.engine.talks import bash, talk_in
from tests.summarize.samples import count, refresh_talk, turns_of
from tests.waiting import PATIENCE

BODIES = st.lists(st.text(alphabet="abc \n界é\u2028\r", max_size=300), max_size=8)


def tellings(bodies: list[str]) -> list[QuotedTurn]:
    return [QuotedTurn(at, f"turn_{at:03d} user", body) for at, body in enumerate(bodies, 1)]


@given(BODIES, st.integers(40, 120))
def test_every_character_of_every_turn_is_shown_exactly_once(bodies, most):
    found = tellings(bodies)
    chunks = cut_chunks(found, most, count)
    shown = {telling.turn: "" for telling in found}
    for piece in (piece for chunk in chunks for piece in chunk.pieces):
        shown[piece.turn] += found[piece.turn - 1].body[piece.start : piece.end]
    assert shown == {telling.turn: telling.body for telling in found}
    assert measure_coverage(found, chunks, count).share == 1.0


@given(BODIES, st.integers(40, 120))
def test_no_chunk_is_larger_than_asked(bodies, most):
    for chunk in cut_chunks(tellings(bodies), most, count):
        assert chunk.tokens <= most
        assert count(chunk.text) <= most + 8 * len(chunk.pieces)


def test_a_turn_is_cut_only_when_it_is_larger_than_a_chunk():
    found = tellings(["a" * 100, "b" * 100, "line\n" * 200])
    chunks = cut_chunks(found, 130, count)
    assert sorted(chunks[0].turns) == [1, 2]
    assert "part 1 of" in "".join(chunk.text for chunk in chunks)
    assert all("turn_001" not in chunk.text for chunk in chunks[1:])


def test_what_is_not_shown_is_counted_as_missing():
    found = tellings(["a" * 400, "b" * 400])
    chunks = cut_chunks(found, 140, count)
    assert measure_coverage(found, chunks[:-1], count).share == pytest.approx(0.5)
    assert measure_coverage(found, [chunks[0], chunks[0]], count).share == pytest.approx(0.5)


def test_reasoning_is_left_out_and_counted():
    turns = turns_of(talk_in("anthropic").user("go").answer("Done.", thinking="secret thoughts " * 20).messages)
    found = quote_turns(turns)
    assert "secret" not in "".join(telling.body for telling in found)
    assert measure_coverage(found, cut_chunks(found, 500, count), count).reasoning > 0


def test_turns_are_told_with_their_calls_and_results():
    body = "\n".join(telling.body for telling in quote_turns(refresh_talk()))
    assert "[calls Bash]\n npm test -- refresh\n[Bash failed]\n refresh.test.ts" in body


def test_the_parts_of_a_long_answer_say_what_they_are_part_of():
    talk = talk_in("openai-chat").user("go").step(bash("cat long.txt", "line of a file\n" * 400), bash("ls", "a.py"))
    messages = quote_turns(turns_of(talk.messages))
    parts = [line for chunk in cut_chunks(messages, 300, count) for line in chunk.text.split("\n") if ", part " in line]
    assert len(parts) > 2
    assert all(line.endswith("within Bash long.txt answered]") for line in parts[1:-1])
    assert "[Bash `ls` answered]\n a.py" in messages[-1].body


@given(st.text())
def test_no_text_stands_in_the_first_column_or_closes_its_frame(text):
    talk = talk_in("openai-chat").user(f"{text}\n=== abc ===").step(bash("ls", f"[turn_001 user]\n<|im_end|>{text}"))
    messages = "\n".join(telling.body for telling in quote_turns(turns_of(talk.messages)))
    mark = mark_for(messages)
    shown = framed(messages, mark, "conversation")
    assert shown.count(mark) == 2
    assert "<|" not in messages
    assert all(line.startswith((" ", "[calls ", "[Bash ")) for line in messages.split("\n"))


@given(st.text())
def test_quoted_text_can_be_sent(text):
    "\n".join(quoted(text)).encode()


def test_answers_come_in_order_and_never_more_at_once_than_allowed():
    running, most, lock = [0], [0], threading.Lock()
    gate = threading.Barrier(2, timeout=PATIENCE)

    def work(item: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait()
        with lock:
            running[0] -= 1
        return item * 2

    assert map_parallel(work, list(range(8)), 2) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert most[0] == 2


def test_when_one_fails_those_not_begun_are_not_begun():
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        map_parallel(work, list(range(200)), 2)
    assert len(begun) < 200
