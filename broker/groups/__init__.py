"""Consumer groups of one broker: members, rebalances and committed offsets."""
