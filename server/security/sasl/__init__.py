"""SASL on both ends of a connection: mechanisms, stored credentials, and the authentication of this broker at other brokers."""
