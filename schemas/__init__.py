"""Message definitions as data, in Kafka's message format. Knows nothing of the other rooms."""
