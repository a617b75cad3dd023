"""Brokers start, fail, shut down and respond."""
