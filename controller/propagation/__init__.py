"""What the controller sends to brokers: batches of requests, and their bodies."""
