"""A broker that registers with the controller by requests instead of in ZooKeeper (RegisterBroker, controller 25)."""
