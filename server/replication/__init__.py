"""Replication: the fetchers with which a broker follows leaders, and the ISR changes of partitions that it leads."""
