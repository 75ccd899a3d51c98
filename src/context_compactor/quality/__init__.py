"""How we know what a compaction keeps: measures, baselines, and the evaluation behind `compactor eval`.

Read in this order: `reading` (raw messages to text), `corpus` and `cutting` (conversations and where they are
cut), `wanted` (what the future needs from the history), `measures` (what a context still holds of it),
`baselines`, `methods` and `scoring`. Then the whole run: `gather` (a user's files), `survey`, `conversations`,
`evaluation`, `outcome`, and what is shown of it: `words`, `page`. For tuning: `run`, `inspect`, `replay`.
The patterns are the harness' own: nothing is shared with the engine.
"""
