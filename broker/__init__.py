"""The state of one broker: metadata cache and replica manager."""
