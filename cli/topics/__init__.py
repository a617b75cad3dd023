"""The commands of `klamm topics`."""
