"""Seeded chaos: a cluster with load, faults drawn from a seed, and a check of what the clients were told against what the cluster has.

A schedule (`schedule.py`) is a pure function of a seed. A run (`run.py`) performs its steps with the verbs of the control API on a cluster
of `klamm serve`, while clients work, and judges their histories. A schedule that fails is shrunk (`shrink.py`) and told as a story
(`story.py`). Only this package imports confluent-kafka.
"""
