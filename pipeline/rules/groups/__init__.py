"""Rules about consumer groups, and what they read."""
