"""Events: what happened to a session, for whoever wants to know.

Read `event.py` (the envelope; `payload.py` keeps it small), `bus.py` (who is told) and `jsonl.py` (the log in a
project's folder).
"""
