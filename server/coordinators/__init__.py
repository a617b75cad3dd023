"""What coordinators of groups and of transactions share: the partitions of their topic that this broker leads."""
