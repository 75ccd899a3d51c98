"""The panes of the session screen, one for each tab or two that belong together."""
