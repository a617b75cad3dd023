"""Sockets: listeners and their limits, connections from clients, channels to brokers."""
