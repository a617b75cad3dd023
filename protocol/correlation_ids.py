"""Correlation ids as Apache Kafka's clients number requests: upwards from 0, with the eight highest kept for the exchange of SASL.

Kafka's brokers are clients of each other, so they number their requests in the same way. Source: `NetworkClient.nextCorrelationId`,
`SaslClientAuthenticator.nextCorrelationId`.
"""

from __future__ import annotations

SASL_IDS = range((1 << 31) - 8, 1 << 31)
"""Of SaslHandshake and SaslAuthenticate. After the last one they begin again."""


def id_after(correlation_id: int) -> int:
    """The correlation id of the next request; 0 after the last one, and after -1."""
    return correlation_id + 1 if correlation_id + 1 < SASL_IDS.start else 0
