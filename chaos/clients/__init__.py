"""The clients of the load: producers, readers, members of groups, copiers."""
