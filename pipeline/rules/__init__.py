"""The conformance rules: each one a record with its statement and its SQL, and the runner that judges journals by them."""
