"""Reassigning partitions (KIP-455, controller 11.3)."""
