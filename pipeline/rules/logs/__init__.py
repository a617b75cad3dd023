"""Rules about the logs of partitions, and what they read."""
