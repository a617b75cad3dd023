"""Transactions: the coordinator of transactional ids, the markers that end transactions, and the verification of partitions."""
