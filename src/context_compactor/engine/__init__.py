"""One compaction, from the messages of a context to a shorter context and a report. Read `compact.py` first."""
