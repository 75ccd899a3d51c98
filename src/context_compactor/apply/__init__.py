"""Apply: write the texts of a plan and put the new context together.

Read `layout.py` (choices to texts), `apply.py` (texts to a context), `compose.py` and `fit.py` (write, count, correct),
`verify.py` (what is refused), then `decisions.py`, `fidelity.py` and `account.py` (what is reported). `digests/`
shortens each kind of content by its own rule.
"""
