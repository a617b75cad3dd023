"""The authorizer, and the check for security that Klamm does not have."""
