"""The jars of Apache ZooKeeper, in the folder `jars` of this package. Klamm finds them there without an import."""
