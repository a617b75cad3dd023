"""Faults: requests of chosen clients get another response than the real one, a late one, or none."""
