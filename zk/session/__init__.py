"""ZooKeeper sessions: connections, requests, and what their errors mean."""
