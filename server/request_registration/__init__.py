"""How a broker registers: in ZooKeeper, or with the controller by requests (RegisterBroker, controller 25)."""
