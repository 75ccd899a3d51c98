"""The record by a model: what it is asked, how its answer is read, and what is mended in it before it is used.

`write.py` is the whole way. `quoting.py` shows turns as material, `spans.py` cuts them where they are too many for one
request, `ask.py` makes the request and `caller.py` keeps the account; `expect.py` says before what it will take.
`summary.py` reads an answer into the parts of a record, and `gate.py` mends it: `evidence.py` is what it compares with,
`exact.py`, `hostile.py` and `language.py` what it looks for, `losses.py` what a text does not tell. `held.py` is a
summary that was written ahead of its compaction, `subject.py` has the values that go in and come out.
"""
