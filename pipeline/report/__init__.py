"""One page about one run: what happened, what it cost, and which rules hold. It needs neither Java nor a network."""
