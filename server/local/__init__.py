"""A whole cluster in this process: its brokers, their ZooKeeper, and what programs use of it."""
