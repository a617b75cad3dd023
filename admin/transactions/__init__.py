"""Calls for transactions and producers."""
