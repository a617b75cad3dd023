"""One file per API: its handler. The table of all handlers, and what several of them share."""
