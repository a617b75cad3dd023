"""Access to ZooKeeper: sessions, znodes, watches, the controller's store, the embedded server. Only this package imports kazoo."""
