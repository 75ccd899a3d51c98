"""What a model is asked, in its own words: one `.md` file each, with strict slots.

`prompt.py` reads and fills them. `summarize.md` asks for the sections of the record and is the one that
`compact_prompt` replaces, headings and all; `frame.md` says what is material and what must be exact: it is always ours.
"""
