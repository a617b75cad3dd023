"""Connections to brokers, and the thread that uses them."""
