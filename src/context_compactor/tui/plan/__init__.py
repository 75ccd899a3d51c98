"""The plan of the next compaction, as one looks at it and changes it: what is wished for, how it is shown, its end.

Read `wish.py` (what was chosen and is not kept yet), `lines.py` (how a plan is shown), `reading.py` (one turn of it in
full), `accepting.py` (keeping what was chosen, and compacting). The pane is `screens/session_plan.py`.
"""
