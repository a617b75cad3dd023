"""Writing and reading of records for command line tools, with kafka-python's producer and consumer."""
