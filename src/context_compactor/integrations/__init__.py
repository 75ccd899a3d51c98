"""One small file for each framework. What they share is in `conversations.py`."""
