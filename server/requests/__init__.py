"""From a request's bytes to a response's bytes: dispatch, what a handler sees, and what requests wait for."""
