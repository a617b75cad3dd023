"""What the machine has for everybody: Java runtimes, locks of folders, files that are replaced. Knows nothing of Kafka."""
