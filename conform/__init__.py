"""An active conformance suite for servers of Kafka's protocol: numbered cases, each with the sentence that it tests."""
