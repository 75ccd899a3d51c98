"""`compactor hook EVENT`: what a coding agent calls while it works. `entry.py` is where every call starts, and most
end."""
