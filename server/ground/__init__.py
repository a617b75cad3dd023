"""The ground of a broker: its identity, its background tasks, and the finalized features of the cluster."""
