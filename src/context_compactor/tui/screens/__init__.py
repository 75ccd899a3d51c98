"""The screens: all sessions, one of them with its panes, a viewer of long texts, and help."""
