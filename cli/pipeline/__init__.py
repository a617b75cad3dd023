"""`klamm pipeline`: from the journal of a lake to tables and verdicts."""
