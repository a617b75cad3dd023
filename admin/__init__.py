"""An admin client (nothing is built yet)."""
