"""Transactions of one broker: producer ids and epochs of transactional ids, their partitions, and how transactions end."""
