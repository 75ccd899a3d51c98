"""Archive: the originals of everything that left the context.

Read `gather.py` (what is archived) and `archive.py` (how it is found again).
"""
