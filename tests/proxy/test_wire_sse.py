"""Server-Sent Events are read with their exact bytes, however the stream is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.proxy.wire import SseEvent, SseParser
from context_compactor.proxy.wire.sse import read_events, write_event
from tests.proxy.wires import Cut, cuts

PIECES = st.sampled_from(
    [
        "data: ",
        "data:",
        "event: a",
        ": note",
        "id: 7",
        "\n",
        "\r\n",
        "\r",
        "\n\n",
        "{}",
        "«ß» 🧪",
        "\u2028",
        "\ufeff",
        "",
    ]
)
STREAMS = st.lists(PIECES, max_size=40).map(lambda pieces: "".join(pieces).encode()) | st.binary(max_size=80)


def _in_chunks(chunks) -> list[SseEvent]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return [*events, *parser.close()]


@given(STREAMS, cuts())
def test_any_chunking_of_any_stream_gives_the_same_events(stream: bytes, cut: Cut):
    assert _in_chunks(cut(stream)) == read_events(stream)


@given(STREAMS)
def test_the_raw_bytes_of_all_events_are_the_stream(stream: bytes):
    assert b"".join(event.raw for event in read_events(stream)) == stream


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_event_has_the_name_and_the_joined_lines_of_its_value(end: str):
    stream = end.join(["event: a", "data: one", ": a note", "data:two", "id: 1", "", ": alone", "", "data: x", "", ""])
    events = _in_chunks(bytes([byte]) for byte in stream.encode())
    assert [(event.name, event.value) for event in events] == [("a", "one\ntwo"), ("", ""), ("", "x")]


def test_an_event_is_given_as_soon_as_its_empty_line_is_there():
    parser = SseParser()
    assert parser.feed(b"data: {}\n") == []
    assert [event.value for event in parser.feed(b"\n")] == ["{}"]
    assert parser.feed(b"data: 1\r\n\r") == []
    assert [event.raw for event in parser.feed(b"\n")] == [b"data: 1\r\n\r\n"]


def test_closing_gives_an_event_without_its_empty_line_and_then_nothing():
    parser = SseParser()
    assert parser.feed(b"event: a\ndata: [DO") == []
    assert parser.close() == [SseEvent(b"event: a\ndata: [DO", "a", "[DO")]
    assert parser.close() == []
    assert [event.value for event in parser.feed(b"data: again\n\n")] == ["again"]


def test_a_character_that_is_cut_in_two_is_whole_in_the_value():
    stream = "data: 🧪\n\n".encode()
    assert [event.value for event in _in_chunks([stream[:8], stream[8:]])] == ["🧪"]


def test_a_huge_event_in_small_chunks_comes_whole():
    text = "x" * 3_000_000
    stream = f"data: {text}\n\n".encode()
    (event,) = _in_chunks(stream[at : at + 1_000] for at in range(0, len(stream), 1_000))
    assert event.value == text


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_rewritten_event_keeps_its_other_lines_and_its_line_ends(end: bytes):
    lines = [b"event: a", b": note", b"data: {", b"data: }", b"id: 3", b"", b""]
    (event,) = read_events(end.join(lines))
    assert event.rewritten({"a": [1]}) == end.join([b"event: a", b": note", b'data: {"a":[1]}', b"id: 3", b"", b""])


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=())), max_size=3))
def test_what_is_written_is_read_back(value: dict[str, str]):
    value = {key.encode(errors="replace").decode(): text for key, text in value.items()}
    (event,) = read_events(write_event(value, "a"))
    assert (event.name, json.loads(event.value)) == ("a", value)
