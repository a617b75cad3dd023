"""Pure rules: which leader is elected, where replicas are placed, and decisions as values."""
