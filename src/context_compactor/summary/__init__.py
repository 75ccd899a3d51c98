"""Summaries by a model, and what may become of them: a better context or none at all, never a worse one.

`write.py` is the whole way, rung by rung. `quoting.py` shows turns as material, `spans.py` cuts them so that a model
sees all of them, `ask.py` makes the request, `ladder.py` climbs from one to the next and `caller.py` keeps the account.
`shape.py` reads an answer and `gate.py` refuses it: `hostile.py`, `exact.py` and `losses.py` are what it looks for,
`evidence.py` what it compares with. `merging.py` joins the summaries of chunks, `language.py` tells languages apart,
`subject.py` has the values that go in and come out. `judge_turns.py` lets a model say which turns matter.
"""
