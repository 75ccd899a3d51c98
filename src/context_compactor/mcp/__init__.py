"""Tools for a coding agent over the Model Context Protocol: what left its context, and how its work stands.

Read `tools.py` first: every tool as a value. `asked.py` and `answers.py` are what goes in and comes out, `scope.py`
says which session is meant, `recalling.py` and `standing.py` do the work. `server.py` puts the tools behind the
protocol; `stdio.py` and `listening.py` are the two ways to reach it.
"""
