"""Decides what the cluster should do; pure but for its one loop."""
