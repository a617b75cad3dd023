"""Releases of Apache Kafka: their APIs, and the versions of the inter-broker protocol."""
