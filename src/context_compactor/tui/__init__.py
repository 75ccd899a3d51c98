"""The terminal UI of `compactor tui`.

Read `sources/base.py` (what a screen may ask for), then `app.py`, `screens/sessions.py` and a pane such as
`panes/turns.py`. `sources/local.py` and `sources/remote.py` answer from a store and from a server. `registry.py` lists
panes and commands. `widgets/row_list.py` is the list that everything long is shown in, `formatting.py` the way of any
text to the screen, and `runtime.py` keeps the app alive and the terminal clean.
"""
