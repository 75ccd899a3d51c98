"""Bad files: always an error that says where, what and what to try; never anything else."""

from __future__ import annotations

import gzip
import io
import json
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.dialects.transcripts.reader import parse_transcript, parse_transcripts, read_transcript
from context_compactor.errors import BadInput, BadTranscript

FIXTURES = Path(__file__).parent.parent / "fixtures" / "transcripts"
LOGS = {name: (FIXTURES / f"{name}.jsonl").read_bytes() for name in ("claude_code", "codex", "pi", "recorded")}

BAD = {
    "empty": (b"", "there is nothing in it"),
    "a megabyte of spaces": (b" " * 1_000_000, "there is nothing in it"),
    "an empty list": (b"[]", "the list is empty"),
    "an empty gzip": (gzip.compress(b""), "there is nothing in it"),
    "prose": (b"Hello there", "not JSON: it starts with 'Hello there'"),
    "a number": (b"42", "not JSON"),
    "binary": (bytes(range(256)), "this is binary"),
    "an archive": (b"PK\x03\x04....", "a zip archive.* Try: unpack it first"),
    "a cut list": (b'[{"role": "user", "content": "He', "the JSON is cut off"),
    "a cut object": (b'{"messages": [{"role": "user"', "the JSON is cut off"),
    "a cut gzip": (gzip.compress(b'[{"role": "user"}]' * 99)[:30], "gzip data is damaged"),
    "a broken list": (b'[\n{"role": "user"}\n{"role": "user"}]', "line 3: not JSON: Expecting ',' delimiter"),
    "a broken line": (b'{"role": "user"}\n{"role" "user"}\n{"role": "user"}', "line 2: not JSON"),
    "a broken first line": (b'{"role": "us\n{"role": "user"}\n', "line 1: not JSON"),
    "a cut last line": (b'{"role": "user"}\n{"role": "us', "line 2: the last line is cut off. Try: write it whole"),
    "a cut recording": (LOGS["recorded"][:-20], "line 3: the last line is cut off"),
    "a list in a line": (b'{"role": "user"}\n[1]\n', "line 2: this is a list, not a message"),
    "a number in a list": (b'[{"role": "user"}, 7]', "item 2: this is (int|a number), not a message"),
    "texts in a list": (b'["a", "b"]', "item 1: this is a text in no known format"),
    "an unknown object": (b'{"choices": []}', "this is an object in no known format"),
    "a message without a role": (b'[{"role": "user"}, {"content": "x"}]', "item 2: .* without 'role'"),
    "no messages": (b'{"messages": []}', "'messages' is empty"),
    "messages that are a text": (b'{"messages": "x"}', "'messages' is a text, not a list"),
    "a message that is a text": (b'{"messages": ["x"]}', r"messages\[0\] is a text, not an object"),
    "a stranger among recordings": (b'{"messages": [{"role": "user"}]}\n{"x": 1}', "line 2: .* not a conversation"),
    "a number in a log": (LOGS["codex"] + b"7\n", "this is .*, not an object"),
    "nested too deeply": (b"[" * 100_000, "nested too deeply"),
    "a number too long": (b'{"role": "user", "n": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
    "not UTF-8": (b'[{"role": "user", "content": "caf\xe9 au lait"}]', "not UTF-8"),
    "half of UTF-16": ("[1]".encode("utf-16")[:-1], "not utf-16 text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_an_error_that_says_what_is_wrong_and_what_to_try(name):
    content, problem = BAD[name]
    with pytest.raises(BadTranscript, match=f"^bad.json.*{problem}") as caught:
        parse_transcript(content, "bad.json")
    assert " Try: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(BadTranscript, match="no such file"):
        read_transcript("nowhere.jsonl")


def test_a_folder(tmp_path):
    with pytest.raises(BadTranscript, match="it is a folder"):
        read_transcript(tmp_path)


@contextmanager
def ordinary_user():
    """Root may read everything, so as root the test becomes somebody else for a moment."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


def test_a_file_that_may_not_be_read():
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "secret.json")
        path.write_text("[]")
        path.chmod(0)
        with ordinary_user(), pytest.raises(BadTranscript, match="no permission"):
            read_transcript(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_path_that_cannot_be_one(path):
    with pytest.raises(BadTranscript, match="cannot be read"):
        read_transcript(path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_not_waited_for():
    with pytest.raises(BadTranscript, match="standard input is a terminal"):
        read_transcript("-", Terminal())


def test_a_closed_pipe():
    class Closed(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("gone")

    with pytest.raises(BadTranscript, match="standard input cannot be read"):
        read_transcript("-", Closed())


ODD = {
    "lone surrogates": b'"\\ud800 half"',
    "raw half characters": b'"\xed\xa0\x80"',
    "raw NUL bytes": b'"a\x00b"',
    "raw tabs": b'"a\tb"',
    "not a number": b"NaN",
    "a number without end": b"1e999",
    "a long number": b"123456789012345678901234567890",
    "a key twice": b'"a", "content": "b"',
    "a line of five megabytes": b'"' + b"x" * 5_000_000 + b'"',
    "base64": b'"' + b"QUJD" * 100_000 + b'"',
    "a megabyte of spaces": b'"' + b" " * 1_000_000 + b'"',
    "line separators": '"a\u2028b\u2029c\u0085d"'.encode(),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    "form", [b'[{"role": "user", "content": %s}]', b'{"role": "user"}\n{"role": "user", "content": %s}\n']
)
def test_odd_values_are_read(name, form):
    assert "content" in parse_transcript(form % ODD[name]).messages[-1]


def test_of_a_key_that_stands_twice_the_last_one_counts():
    assert parse_transcript('[{"role": "user", "content": "a", "content": "b"}]').messages[0]["content"] == "b"


def test_text_with_half_characters_survives():
    text = json.dumps([{"role": "user", "content": "x"}]).replace("x", "\ud800")
    assert parse_transcript(text).messages[0]["content"] == "\ud800"


def outcome(content: bytes | str) -> object:
    """Transcripts, or an error made on purpose; anything else fails the test that asks."""
    try:
        return list(parse_transcripts(content))
    except BadInput as problem:
        return problem


@given(st.binary() | st.text())
def test_no_content_at_all_breaks_the_reader(content):
    outcome(content)


@given(st.sampled_from(sorted(LOGS)), st.floats(0, 1))
def test_a_file_cut_anywhere_is_read_or_refused(name, share):
    log = LOGS[name]
    outcome(log[: int(len(log) * share)])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.sampled_from(sorted(LOGS)), st.randoms(use_true_random=False), json_values)
def test_a_log_with_any_field_made_strange_is_read_or_refused(name, random, strange):
    lines = [json.loads(line) for line in LOGS[name].splitlines()]
    place = random.choice(list(_places(lines)))
    place[0][place[1]] = strange
    outcome("".join(json.dumps(line) + "\n" for line in lines))


def _places(value: object):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


@given(st.lists(json_values, max_size=4))
def test_any_list_is_read_or_refused(values):
    outcome(json.dumps(values))
    outcome("".join(json.dumps(value) + "\n" for value in values))
