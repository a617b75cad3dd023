"""A real ZooKeeper in a JVM that this process owns."""
