"""The coordinator of consumer groups: it owns groups whose partition of the offsets topic this broker leads."""
