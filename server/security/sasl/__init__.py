"""SASL on both ends of a connection: mechanisms, the authentication of clients, and that of this broker at other brokers."""
