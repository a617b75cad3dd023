"""Replays bugs of public clients: a broken and a mended release of an unmodified client meet the same cluster, and the rules judge both."""
