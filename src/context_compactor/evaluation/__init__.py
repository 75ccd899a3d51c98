"""How we know what a compaction keeps: measures, baselines, and the evaluation behind `compactor eval`."""
