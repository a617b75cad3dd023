"""Messages of the protocol and their codec, and the nouns that all packages share; no sockets, no state."""
