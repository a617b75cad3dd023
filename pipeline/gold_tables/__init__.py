"""Gold: what the tables that people look at are made of."""
