"""Log directories: the formats of their files, how logs are loaded from them, written to them and moved between them."""
