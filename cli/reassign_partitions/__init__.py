"""`klamm reassign-partitions`: plans, starts, shows and cancels the moves of replicas (controller 17, 18, 22.7).

`verb` reads the options, `files` the JSON files, `plan` compares them with the cluster, `actions` does what was chosen, `reports` has the
texts. The requests to a cluster stand in `cluster` as one interface, with two implementations: `bootstrap` speaks to brokers,
`znodes` reads and writes ZooKeeper.
"""
