"""The commands that run brokers: `klamm serve`, `klamm broker` and `klamm chaos`; and the health check of a container."""
