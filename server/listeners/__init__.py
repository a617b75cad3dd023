"""Listeners: the connections of clients, their limits, their security, and the order in which their requests take effect."""
