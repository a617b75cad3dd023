"""What a single body shows to be wrong, found where the body is decoded."""
