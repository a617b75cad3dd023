"""The commands of `klamm control`."""
