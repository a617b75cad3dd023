"""Logs of replicas: segments of record batches, leader epochs, producer states, retention, compaction; and a broker's log manager."""
