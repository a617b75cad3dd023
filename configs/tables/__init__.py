"""The definitions of all configs, as tables."""
