"""What the Makefile runs: checks, generated pages, the picture, the bench."""
