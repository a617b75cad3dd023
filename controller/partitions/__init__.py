"""Partitions and replicas change state: the state machines, elections, and the one way to commit a change."""
