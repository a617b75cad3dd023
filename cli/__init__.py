"""The command line: reads options and files, prints results, and turns each failure into one line and an exit code."""
