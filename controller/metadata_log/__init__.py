"""The metadata log: what is committed in ZooKeeper, as records that registered brokers fetch (controller 25.1)."""
