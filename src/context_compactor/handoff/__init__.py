"""Handoff: what a sub-agent, the next phase or a fresh window is given to start with, in a few hundred tokens.

Read `writer.py` first: it writes what is known of a conversation, in plain sentences (`handoff_text`, the checkpoint's
prose) or as a record (`resume_brief`, which is also the brief after an agent's own compaction).

Sub-agents are asked and answer in `messages.py`. `reading.py` reads what they really write; `summary.py` holds it to
500 tokens by the rules of `rules.py`. `orchestrator.py` takes from an answer what it needs and keeps a `state.py`;
`points.py` measures all that.

`checkpoint.py` says where the work stands (`checkpoint_text.py` writes and reads its page, `git.py` looks at the
repository), and `resume.py` whether it can go on from there.
"""

from __future__ import annotations

from context_compactor.handoff.writer import handoff_text

__all__ = ["handoff_text"]
