"""Names, types, defaults, validation and sources of configs."""
