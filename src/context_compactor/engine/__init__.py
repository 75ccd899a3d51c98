"""Steps of a compaction beside the choice of lines."""
