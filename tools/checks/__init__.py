"""Every check that a linter cannot do: part of `make check`."""
