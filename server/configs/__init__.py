"""Configs of a running broker and of topics: read, checked, changed and applied."""
