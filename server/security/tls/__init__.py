"""TLS on both ends of a connection: key stores, contexts, and who a certificate is."""
