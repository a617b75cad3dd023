"""Brokers start, fail, shut down and respond; some register with the controller instead of in ZooKeeper (RegisterBroker)."""
