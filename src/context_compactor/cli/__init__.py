"""The command line. Read `main.py`, then one file per command or two; `output.py` says what goes to which stream.

A command reads its input, calls the same function a Python user would call, and shows the result. `opening.py` says
which session a command means, `feeding.py` makes a transcript a session. Nothing slower than a few milliseconds is
imported before it is needed.
"""
