"""How we know what a compaction keeps: measures, baselines, and a runner over recorded conversations.

Read in this order: `reading` (raw messages to text), `corpus` and `cutting` (conversations and where they are
cut), `wanted` (what the future needs from the history), `measures` (what a context still holds of it),
`baselines`, `methods`, `run` and `inspect`. The patterns are the harness' own: nothing is shared with the engine.
"""
