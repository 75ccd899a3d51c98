"""Handoff: what a sub-agent or the next phase is given to start with, in a few hundred tokens.

Read `text.py` (the whole), then `sections.py` (what was asked, decided, tried and changed) and `notes.py` (the names
that the agent works with, each beside words it stood with), which weighs them by `worth.py`.
"""

from __future__ import annotations

from context_compactor.handoff.text import handoff_text

__all__ = ["handoff_text"]
