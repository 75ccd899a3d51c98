"""What a model is asked, in its own words: one `.md` file each, with strict slots.

`prompt.py` reads and fills them. `summarize.md` is the one that `compact_prompt` replaces; `frame.md` says what an
answer must look like and is always ours, so that another prompt changes what is looked for and never what is checked.
"""
