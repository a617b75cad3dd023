"""The commands `klamm produce` and `klamm consume`."""
