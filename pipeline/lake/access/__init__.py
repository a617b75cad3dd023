"""Who may write the tables of a lake, and where its journal is."""
