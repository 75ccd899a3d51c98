"""Work that nobody waits for: jobs as rows of the store, one after the other in a session, side by side in several.

Read `schedule.py` (what a look at the gauge queues), `work.py` (what each kind of job does), `again.py` (how a finished
one looks again), then `engine.py` (who does them, in threads), with `leases.py` and `retries.py` for what goes wrong.
What must never happen twice or at once is forbidden lower down, by the indexes of the table: `store/desk_jobs.py`.
"""
