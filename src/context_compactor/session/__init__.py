"""A living conversation: the log of everything that was said, and the context that is computed from it.

Read `log.py` first (how a context follows from a log), then `session.py` (the verbs). `values.py` is what a session
remembers beside its log, `gauge.py` and `watch.py` how full the context is, `guard.py` when not to try again,
`compacting.py` and `keep.py` how a compaction is made, archived and committed, `automatic.py` when nobody asks for it,
`recall.py` and `restore.py` how an original comes back, `memory.py` what outlives the text, `checkpoints.py`,
`resuming.py` and `handing.py` how work goes on elsewhere, `project.py` and `after.py` the files in a user's project.
"""
