"""The real coding agents of this machine, checked against a scripted model."""
