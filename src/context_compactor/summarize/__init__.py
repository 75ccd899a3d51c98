"""A model's summaries: what it is asked, how its answer is read, and what is corrected in it before it is used.

Read `summarizer.py` first: one compaction with a model, within its limits. `subject.py` says what is summarized and
what that should cost, `request.py` quotes the turns behind the prompt of `prompt.py`, and `writer.py` sends the
requests. `summary.py` reads an answer into the parts of a record; `gate.py` corrects it by what `evidence.py` and
`language.py` know of the conversation; `merge.py` merges it into the engine's record. `model.py` has the values that a
model gets and returns, `clients/` the providers, `prices.py` what they cost.
"""
