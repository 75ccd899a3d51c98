"""Facts: what must outlive the text it stood in.

`fact.py` says what a fact is and `extract.py` gathers all of them. Each of the others finds one sort: `requests`,
`constraints`, `decisions`, `state`, `files`, `side_effects`, `consent`, `subagents`. `speech.py` tells what somebody
said from what a client put into their mouth, `cues.py` lists the wordings. `ledgers.py` and `remember.py` turn facts
into the lines of the record. `promote.py` finds what other sessions should know, `learned.py` writes it down, and
`owners.py` keeps the lessons of each owner apart.
"""
