"""The cases, a file for each section."""
