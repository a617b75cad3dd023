"""A file per API: what a broker answers."""
