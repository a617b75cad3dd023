"""One file per API: its handler."""
