"""The verbs of a cluster, what they share, the table of their routes and the server of HTTP."""
