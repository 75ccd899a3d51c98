"""Tools for a coding agent over the Model Context Protocol: what left its context, and how its work stands.

Read `tools.py` first: every tool as a value. `schemas.py` is what goes in and comes out, `session_scope.py` says which
session is meant, `handlers.py` does the work. `server.py` puts the tools behind the protocol; `stdio.py` and `http.py`
are the two ways to reach it.
"""
