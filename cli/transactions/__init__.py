"""The commands of `klamm transactions`."""
