"""What a broker counts for its metrics. `server/mbeans` shows them by the names of Kafka's MBeans."""
