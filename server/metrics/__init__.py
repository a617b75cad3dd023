"""Metrics of a broker, by the names of Kafka's MBeans: what counts, the table of all MBeans, and the endpoint that Prometheus scrapes."""
