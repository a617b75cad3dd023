"""Replication throttles that requests set, and their removal (KIP-179, controller 22)."""
