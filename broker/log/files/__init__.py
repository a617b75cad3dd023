"""Log directories: the formats of their files; loading, writing and moving of logs."""
