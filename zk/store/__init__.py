"""The controller's store on ZooKeeper, with one area per file."""
