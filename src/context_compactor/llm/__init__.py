"""Models that write. Nothing here is imported, and nothing leaves the machine, unless a model is named.

Read in this order:

1. `model` has what is asked of a model and what it answers; the shape itself is `Model` in `protocols.py`.
2. `names` opens a model by its name; `secrets` keeps keys and passwords out of what is said of it.
3. `openai_client`, `anthropic_client` and `litellm_client` speak to one; `collect` puts the pieces of a stream
   together, `schema` reads JSON out of the text, `failures` says what an error of theirs means to us.
4. `calling` lets a stream be ended at any moment; `retry` tries again what is worth it; `limited` keeps to the limits.
5. `prices` says what a call has cost, `savings` what a compaction means for the agent's own bill.
"""
