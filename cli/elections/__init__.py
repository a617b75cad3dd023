"""`klamm leader-election` and `klamm preferred-replica-election`."""
