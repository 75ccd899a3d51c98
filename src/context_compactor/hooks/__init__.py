"""`compactor hook EVENT`: what a coding agent calls while it works.

`quick.py` is where every call begins, and where most end. What is left goes to `work.py`, which knows one file for each
event. Whatever happens, the agent goes on: a hook leaves with 0.
"""
