"""Coding agents that keep their own conversations: what is known of each, and following what they write down.

`known.py` is the table of what each agent can do. `following.py` makes the log of an agent's session a session of the
store and keeps up with it; `shelving.py` archives all of it, `adopting.py` takes over the agent's own compactions.
`tally.py` counts, in a file that a hook can open within a few milliseconds.
"""
