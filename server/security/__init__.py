"""Who may do what, and the security that Klamm does not have."""
