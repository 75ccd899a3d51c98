"""Coding agents: what each can do, their hooks, installing into them, and sessions that follow their logs.

`coding_agents.py` is the table of what each agent can do. `sync.py` keeps a session of the store up to date with the
log of an agent; `adoption.py` takes over the agent's own compactions. `hook_state.py` counts, in a file that a hook can
open within a few milliseconds.
"""
