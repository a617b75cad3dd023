"""Brokers that register with the controller instead of in ZooKeeper (RegisterBroker, controller 25)."""
