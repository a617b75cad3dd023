"""What the tools for Kafka clusters share, and those tools that are one file."""
