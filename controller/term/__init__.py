"""The term of an active controller: its state and its partners, and the requests for throttles that are under way."""
