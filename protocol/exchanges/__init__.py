"""What the two ends of a connection said: frames, requests with their responses, error codes, who the client is."""
