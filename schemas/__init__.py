"""Message definitions as data, in Kafka's message format. Imports no other package."""
