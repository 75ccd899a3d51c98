"""Facts: what must outlive the text it stood in.

`fact.py` says what a fact is and `extract.py` gathers all of them. Calls are read by `calls.py` and `shell.py`, their
results by `outputs.py`, `kinds.py` and `outcomes.py`; what somebody said by `utterances.py`, with the wordings of
`cues.py`. Each of the others finds one sort: `tasks`, `decisions`, `failures`, `file_history` and `files`,
`side_effects`. `ledgers.py` turns facts into the lines of the record. `promotion.py` finds what other sessions should
know; `lessons.py` and `lesson_folders.py` keep it, for each owner apart.
"""
