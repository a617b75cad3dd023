"""Rules about transactions, and what they read."""
