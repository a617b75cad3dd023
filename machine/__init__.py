"""What the machine has for everybody: Java runtimes, locks of folders. Knows nothing of Kafka."""
