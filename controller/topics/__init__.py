"""Topics are created, grow and are deleted."""
