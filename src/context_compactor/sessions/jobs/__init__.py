"""Background work: jobs as rows of the store, one after the other in a session, side by side in several."""
