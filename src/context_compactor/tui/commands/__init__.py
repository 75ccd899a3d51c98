"""What can be entered behind a slash. Each command is a value in a small file; `registry.py` lists them all.

`entering.py` says what becomes of what was entered, `offering.py` how it may go on, `doing.py` what is shown meanwhile.
"""
