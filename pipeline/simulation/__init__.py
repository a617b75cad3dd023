"""What becomes of the leaders of millions of partitions, by the controller's own rules."""
