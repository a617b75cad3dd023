"""The messages of the protocol and their codec, and the types that all packages share. It has no sockets and no state."""
