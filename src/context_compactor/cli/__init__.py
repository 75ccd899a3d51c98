"""The command line. Read `main.py`, then one file per command; `output.py` says what goes to which stream.

A command reads its input, calls the same function a Python user would call, and shows the result. Nothing
slower than a few milliseconds is imported before it is needed.
"""
