"""A proxy in front of any Kafka cluster, which keeps a journal of what clients and brokers say (`klamm proxy`)."""
