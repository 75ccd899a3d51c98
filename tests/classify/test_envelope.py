from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.classify.envelope import Output, body_start, unwrap

CODEX = "Chunk ID: 4d\nWall time: 0.01 seconds\nProcess exited with code 128\nOriginal token count: 21770\nOutput:\n"
TRUNCATED = "Warning: truncated output (original token count: 21770)\nTotal output lines: 711\n\n"
PERSISTED = "<persisted-output>\nOutput too large (21KB). Full output saved to: /x\n\nPreview (first 2KB):\n"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("plain", Output("plain")),
        ("<returncode>1</returncode>\n<output>\nboom\n</output>", Output("boom", 1)),
        ("Exit code 2\nboom", Output("boom", 2)),
        (f"{CODEX}boom", Output("boom", 128)),
        (f"{CODEX}{TRUNCATED}boom", Output("boom", 128)),
        ("Exit code: 3\nWall time: 1 seconds\nOutput:\nboom", Output("boom", 3)),
        ('{"output":"boom\\n","metadata":{"exit_code":4,"duration_seconds":0.1}}', Output("boom\n", 4)),
        ("boom\n[The command completed with exit code 5.]", Output("boom", 5)),
        ("boom\n\nCommand exited with code 6", Output("boom", 6)),
        ("boom\n<system-reminder>\nBe careful.\n</system-reminder>\n", Output("boom\n")),
        ("<tool_use_error>boom</tool_use_error>", Output("boom")),
        (f"{PERSISTED}boom\n</persisted-output>", Output("boom")),
    ],
)
def test_what_an_agent_wraps_around_output_comes_off(text, output):
    assert unwrap(text) == output


@given(st.text())
def test_text_that_nobody_wrapped_stays(text):
    output = unwrap(f"x{text}x")
    assert output == Output(f"x{text}x")
    assert body_start(f"x{text}x") == 0


@given(st.text(alphabet="<>/[]outpreturncode0123456789 \nExitC:dWalm."))
def test_any_text_can_be_unwrapped(text):
    assert len(unwrap(text).body) <= max(len(text), 1)
