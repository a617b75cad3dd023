"""Rules that need frames of clients alone, and what they read: any journal, also one of a proxy in front of another server."""
