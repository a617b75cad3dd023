"""Requests that set replication throttles, step by step (KIP-179, controller 22)."""
