"""Handoff: what a sub-agent, the next phase or a fresh window is given to start with, in a few hundred tokens.

Read `writer.py` first: it writes what is known of a conversation, in plain sentences (`handoff_text`, the checkpoint's
prose) or as a record (`resume_brief`, which is also the brief after an agent's own compaction).

Sub-agents get and return the messages of `protocol.py`. `parser.py` reads what they really write; `context_summary.py`
brings it under 500 tokens by rule. `orchestrator.py` takes from an answer what it needs, and measures it.

`checkpoint.py` says where the work and its repository stand (`checkpoint_text.py` writes and reads its page), and
`resume.py` whether it can go on from there.
"""

from __future__ import annotations

from context_compactor.handoff.writer import handoff_text

__all__ = ["handoff_text"]
