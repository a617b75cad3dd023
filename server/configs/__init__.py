"""Configs of a running broker and of topics, as they are in ZooKeeper and in files, and the policies that check changes."""
