"""The lake: its folder, its tables, their logs and files, and bronze."""
