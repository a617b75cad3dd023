"""The lake: its folder, its tables, their manifests and parts, and bronze."""
