"""Readers of the files that hold conversations, one file per format.

`lines` turns bytes into JSON values and says which line is wrong. `claude_code`, `codex` and `pi` read the session
logs of those agents; `plain` reads messages, request bodies and recorded conversations. `steps` puts what a log
scattered over many lines back together as messages; `branch` finds the lines that still count after a rewind,
`after_compaction` those that belong to a compaction and were said by nobody.
"""
