"""Pure rules: which leader is elected, where replicas are placed, which topics may be created; decisions as values."""
