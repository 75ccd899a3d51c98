"""The terminal UI: every context of a store or a server, how full it is, with what, and what can be done about it.

Read `source.py` (what the screens need, wherever it comes from), then `app.py` and a screen such as
`screens/sessions.py`. `local.py` and `remote.py` are the two places it comes from; `registry.py` says which panes one
session has and which commands its prompt knows. `widgets/rows.py` is the list that makes its rows as they are seen.
Text of a conversation reaches the screen through `texts.py` only. `running.py` leaves the terminal as it was found,
and `surviving.py` makes a message of an error that nobody expected.
"""
