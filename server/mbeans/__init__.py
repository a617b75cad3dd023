"""Metrics by the names of Kafka's MBeans: the table of all MBeans, one reading of them, and the endpoint that Prometheus scrapes."""
