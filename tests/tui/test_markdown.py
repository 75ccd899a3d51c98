"""Markdown on the terminal: nothing is lost, nothing is markup of ours, and what grows ends as if it had been there."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from context_compactor.tui.formatting import safe_text
from context_compactor.tui.widgets.markdown import Prose, finished_length, open_fence, render_markdown
from tests.tui.places import settle

PIECES = (
    "Some words", "\n", "\n\n", "```python\n", "```\n", "x = f(1)", "- item", "1. first", "> quote", "# Title",
    "    code", "| a | b |\n|---|---|\n| 1 | 2 |", "**bold**", "`code`", "[words](http://x.y)", "<div>html</div>",
    "[1]: http://x", "[red]no markup[/red]", "~~~", "***", "\\*", "&amp;", "![alt](a.png)",
)  # fmt: skip
writing = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=30).map("".join).map(safe_text)


def test_text_reads_as_it_should():
    text = """# Title

Some *words* with `code` and [a link](http://x.y/z).
Next line.

1. one
2. two
   - nested

> quoted

| name | value |
|---|---|
| a | 1 |

```python
x = f(1)
```

<div>html</div>"""
    assert (
        render_markdown(text).plain
        == """Title

Some words with `code` and a link (http://x.y/z).
Next line.

1. one
2. two
   ◦ nested

│ quoted

name │ value
─────┼──────
a    │ 1

```python
x = f(1)
```

<div>html</div>"""
    )


@pytest.mark.parametrize("text", ["[1]: http://evil", "<script>x</script>", "[bold]x[/bold]", "&", "a_b_c", "{x}"])
def test_what_is_no_markdown_stands_as_it_is(text):
    assert render_markdown(text).plain == text


def test_a_language_that_nobody_knows_is_plain_text():
    assert render_markdown("```klingon\nqapla'\n```").plain == "```klingon\nqapla'\n```"


@given(writing)
def test_no_word_is_lost(text):
    shown = render_markdown(text).plain
    words = [word for word in ("Some words", "x = f(1)", "item", "html", "no markup", "http://x") if word in text]
    assert all(word in shown for word in words)


@given(writing)
def test_what_is_settled_reads_the_same_whatever_follows(text):
    end = finished_length(text)
    assert 0 <= end <= len(text)
    assert not open_fence(text[:end])


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("\n\n".join), st.integers(1, 9))
def test_a_text_that_grows_ends_as_one_that_was_there_at_once(text, step):
    assert drawn(text, step) == drawn(text, len(text))


@given(st.sampled_from(["word ", "x\n", "```\n", "```py\ny\n", "- a\n", "`" * 90]), st.integers(1, 4_000))
def test_a_text_without_end_is_drawn_in_pieces_of_a_bearable_size(piece, times):
    chunks = drawn(piece * times, 1_700)
    assert all(len(chunk) <= 9_000 for chunk in chunks)
    if piece in ("word ", "x\n"):
        assert sum(chunk.count(piece.strip()) for chunk in chunks) >= times - 2 * len(chunks)


class _App(App[None]):
    def compose(self) -> ComposeResult:
        yield Prose()


def drawn(text: str, step: int) -> list[str]:
    """What is on the screen when a text has come in steps."""

    async def run() -> list[str]:
        async with _App().run_test() as pilot:
            prose = pilot.app.query_one(Prose)
            for at in range(0, len(text), step):
                prose.add(text[at : at + step])
            await settle(pilot)
            return [str(chunk.render()) for chunk in prose.query(".chunk")]

    return asyncio.run(run())
