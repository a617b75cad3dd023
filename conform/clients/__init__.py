"""The suite for clients: Klamm is the cluster, and the frames that the client sends decide."""
