"""Klamm: a wire-compatible stand-in for Kafka's controller broker."""

__version__ = "0.1.0"
