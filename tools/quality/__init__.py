"""`make eval`: quality on the development corpus."""
