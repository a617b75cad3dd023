"""Local clusters: brokers in this process or in child processes, their ZooKeeper, and the API for programs."""
