"""The parts of one compaction, from the turns of a conversation to the record that stands for them."""
