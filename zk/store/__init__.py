"""The controller's store on ZooKeeper, an area in each file."""
