"""`klamm reassign-partitions`: plans, starts, shows and cancels the moves of replicas (controller 17, 18, 22.7).

`verb` reads the options, `cli.tools.files` the JSON files. `plan` compares them with the cluster, `actions` runs the chosen action,
`reports` has the texts. `cluster` is the interface to a cluster, with two implementations: `bootstrap` uses brokers, `znodes` uses
ZooKeeper.
"""
