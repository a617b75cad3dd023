"""What a config is: its name, type, default and validator, and how its text is parsed."""
