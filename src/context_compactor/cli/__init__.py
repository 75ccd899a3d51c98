"""The command line. Read `main.py`, then the file of a command; `output.py` says what goes to which stream.

A command reads its input, calls the same function a Python user would call, and shows the result. `options.py` opens
the file, session or store that a command names, `compact_session.py` makes a transcript a session. Nothing slower than
a few milliseconds is imported before it is needed.
"""
