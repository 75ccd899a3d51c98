"""What makes a line worth keeping: each test is one reason of the table."""

from __future__ import annotations

import pytest

from context_compactor import compact
from context_compactor.dialects.messages import ToolCall
from context_compactor.engine.relevance import NameUse, Weights, name_worth
from context_compactor.engine.view import cut_blocks
from context_compactor.facts.calls import call_body
from context_compactor.facts.file_history import label_root
from context_compactor.facts.ledgers import cut_failure
from context_compactor.facts.names import NameTable, names_in, shape_worth
from tests.engine.talks import bash, edit, read, talk_in
from tests.failures.scenarios import code, fill, record_text


def use(**counts: int) -> NameUse:
    """A name that was met like this."""
    met = NameUse()
    for name, value in counts.items():
        setattr(met, name, value)
    return met


@pytest.mark.parametrize(
    ("dearer", "cheaper"),
    [
        (use(used=4), use(used=1)),
        (use(used=1), use(code=1)),
        (use(code=1), use(other=1)),
        (use(code=3), use(code=1)),
        (use(used=1), use(used=1, after=20_000)),
        (use(said=1, used=1, after=50_000), use(used=1, after=50_000)),
        (use(code=1), use(code=1, after=3_000)),
    ],
)
def test_one_name_is_worth_more_than_another(dearer, cheaper):
    assert name_worth(dearer, Weights()) > name_worth(cheaper, Weights())


@pytest.mark.parametrize("name", ["MAX_RETRIES", "jwt.py", "store.get_user", "get_user", "getUser", "auth/jwt.py"])
@pytest.mark.parametrize("weak", ["well-known", "README", "2026", "1.2.3", "v1.4"])
def test_a_name_is_likelier_to_come_back_than_a_word_that_only_looks_like_one(name, weak):
    assert shape_worth(name) > shape_worth(weak)


def test_a_path_goes_by_its_end_however_it_is_written():
    table = NameTable()
    ways = ("/srv/code/app/src/auth/jwt.py", "./src/auth/jwt.py", "auth/jwt.py")
    shared = set.intersection(*(table.ids(way) for way in ways))
    assert {table.names[name] for name in shared} >= {"auth/jwt.py", "jwt.py"}


def test_underscores_belong_to_a_name():
    assert names_in("__init__") == ["__init__"]
    assert "_meta" in names_in("_meta.pk")


def test_labels_leave_a_folder_in_sight():
    assert label_root([f"/srv/code/app/src/auth/{name}.py" for name in "abc"]) == "/srv/code/app/src/"
    assert label_root(["/app/a.py", "/app/b.py"]) == ""


def test_an_edit_shows_what_is_new_and_marks_what_is_gone():
    call = ToolCall("1", "Edit", '{"file_path": "a.py", "old_string": "x = 1\\ny = 2", "new_string": "x = 1\\ny = 3"}')
    assert call_body(call).split("\n") == ["file_path: a.py", "x = 1", "y = 3", "- y = 2"]


def test_bare_options_of_a_call_are_not_worth_a_line():
    lines = ["grep -rn expiry src", "offset: 10", "replace_all: false", "description: Look for the expiry"]
    assert [block.text for block in cut_blocks("\n".join(lines), is_call=True)] == lines[:1]


def test_two_failures_that_differ_at_the_end_of_a_path_stay_two():
    paths = [f"/srv/code/company/monorepo/services/billing/src/handlers/{name}.py" for name in ("pay", "refund")]
    lines = {cut_failure(f"`Read {path}` → File does not exist. (file_001)", 64) for path in paths}
    assert len(lines) == 2


def test_a_shortened_error_keeps_its_first_and_its_last_line():
    first, last = "first " + "x" * 100, "last " + "y" * 100
    line = cut_failure(f"`make` → {first} … {last} (tool_001)", 64)
    assert "first x" in line
    assert "last y" in line


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_a_line_that_is_looked_at_again_and_again_is_kept_once(dialect):
    talk = talk_in(dialect).user("Fix the store.")
    line = "def expire(self, key: str, seconds: int) -> bool:"
    for number in range(4):
        talk.step(read("src/store.py", f"{line}\n    return self.ttl(key) > seconds + {number}\n" + code("store", 30)))
    fill(talk.step(edit("src/store.py", "a = 1", "a = 2")), 8)
    result = compact(talk.messages, target_tokens=1_700, dialect=dialect)
    assert record_text(result.messages, dialect).count(line) == 1


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic"])
def test_the_record_says_where_its_paths_begin(dialect):
    talk = talk_in(dialect).user("Tidy up.")
    for name in "abcdef":
        talk.step(read(f"/srv/code/app/src/{name}.py", code(name, 10)), bash(f"wc {name}.py", "10"))
    result = compact(fill(talk, 8).messages, target_tokens=1_500, dialect=dialect)
    text = record_text(result.messages, dialect)
    assert "paths are below /srv/code/app/ or absolute" in text
    assert "src/a.py" in text
