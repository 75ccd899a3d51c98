"""`compactor install` and `uninstall`: our entries in the settings of coding agents, and nothing else touched there."""
