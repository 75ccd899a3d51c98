from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_compactor.facts.outputs import ToolOutput, body_start, unwrap

CODEX = "Chunk ID: 4d\nWall time: 0.01 seconds\nProcess exited with code 128\nOriginal token count: 21770\nOutput:\n"
TRUNCATED = "Warning: truncated output (original token count: 21770)\nTotal output lines: 711\n\n"
PERSISTED = "<persisted-output>\nOutput too large (21KB). Full output saved to: /x\n\nPreview (first 2KB):\n"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("plain", ToolOutput("plain")),
        ("<returncode>1</returncode>\n<output>\nboom\n</output>", ToolOutput("boom", 1)),
        ("Exit code 2\nboom", ToolOutput("boom", 2)),
        (f"{CODEX}boom", ToolOutput("boom", 128)),
        (f"{CODEX}{TRUNCATED}boom", ToolOutput("boom", 128)),
        ("Exit code: 3\nWall time: 1 seconds\nOutput:\nboom", ToolOutput("boom", 3)),
        ('{"output":"boom\\n","metadata":{"exit_code":4,"duration_seconds":0.1}}', ToolOutput("boom\n", 4)),
        ("boom\n[The command completed with exit code 5.]", ToolOutput("boom", 5)),
        ("boom\n\nCommand exited with code 6", ToolOutput("boom", 6)),
        ("boom\n<system-reminder>\nBe careful.\n</system-reminder>\n", ToolOutput("boom\n")),
        ("<tool_use_error>boom</tool_use_error>", ToolOutput("boom")),
        (f"{PERSISTED}boom\n</persisted-output>", ToolOutput("boom")),
    ],
)
def test_what_an_agent_wraps_around_output_comes_off(text, output):
    assert unwrap(text) == output


@given(st.text())
def test_text_that_nobody_wrapped_stays(text):
    output = unwrap(f"x{text}x")
    assert output == ToolOutput(f"x{text}x")
    assert body_start(f"x{text}x") == 0


@given(st.text(alphabet="<>/[]outpreturncode0123456789 \nExitC:dWalm."))
def test_any_text_can_be_unwrapped(text):
    assert len(unwrap(text).body) <= max(len(text), 1)
