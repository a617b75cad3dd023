"""The control API of a cluster whose brokers are in processes of their own."""
