"""Produce requests: their decoding shortcuts, and waiting for acks."""
