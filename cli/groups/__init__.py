"""The commands of `klamm groups`."""
