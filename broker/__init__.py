"""What one broker holds: metadata cache, hosted partitions, configs."""
