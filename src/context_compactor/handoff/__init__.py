"""Handoff: what a sub-agent or the next phase is given to start with, in a few hundred tokens.

Read `text.py` (the whole), then `sections.py` (what was asked, decided, tried and changed) and `notes.py` (the names
that the agent works with, each beside words it stood with), which weighs them by `worth.py`.

Sub-agents are asked and answer in `messages.py`. `reading.py` reads what they really write, with `task_result.py` for
one form of it; `summary.py` holds it to 500 tokens by the rules of `rules.py`, passage by passage (`passages.py`).
`orchestrator.py` takes from an answer what `extracted.py` finds in it and keeps a `state.py`, in which `register.py`
says who runs. `points.py` measures all that, and `stored.py` writes it down.

`checkpoint.py` says where the work stands (`checkpoint_text.py` writes and reads its page, `git.py` looks at the
repository), `resume.py` whether it can go on from there, and `resume_brief.py` with what.
"""

from __future__ import annotations

from context_compactor.handoff.writer import handoff_text

__all__ = ["handoff_text"]
