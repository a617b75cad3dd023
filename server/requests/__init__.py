"""From the bytes of a request to the bytes of its response: dispatch, the context of handlers, the purgatory, the response cache."""
