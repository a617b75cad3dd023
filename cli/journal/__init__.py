"""The commands of `klamm journal`."""
