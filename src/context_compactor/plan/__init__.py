"""Plan: choose what stays, down to a few lines.

Read `options.py` (what is offered), `sources.py` and `view.py` (what strategies look at), `zones.py` (which turns
stay), then `planner.py` and `choose.py` (the choice itself); `goal.py` says what is aimed at, `plan.py` how it is told.
"""
