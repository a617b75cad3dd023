"""Steering from outside: the verbs of a cluster, and the HTTP interface that offers them."""
