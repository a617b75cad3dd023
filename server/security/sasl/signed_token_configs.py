"""The configs of signed tokens (`sasl.oauthbearer.*`) of one listener. Other modules need neither them nor PyJWT."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlparse

from klamm.configs.definitions.types import ConfigError
from klamm.configs.listeners import ListenerProperties
from klamm.seams.clock import Clock

if TYPE_CHECKING:
    from klamm.server.security.sasl.signed_tokens import SignedTokens

URL = "sasl.oauthbearer.jwks.endpoint.url"
SCHEMES = ("file", "http", "https")


def signed_tokens(properties: ListenerProperties, clock: Clock) -> SignedTokens:
    """What checks the tokens of a listener. Raises ConfigError, also for a file of keys that cannot be read."""
    try:
        from klamm.server.security.sasl.signed_tokens import Expected, KeySet, SignedTokens
    except ImportError:
        from klamm.machine.extras import install_command

        raise ConfigError(URL, None, f"signed tokens need PyJWT: {install_command('oauthbearer')}") from None

    url = properties.of_mechanism("OAUTHBEARER", URL)
    if not url:
        raise ConfigError(URL, url, "must be set, because tokens are checked with its keys")
    if urlparse(url).scheme.lower() not in SCHEMES:
        raise ConfigError(URL, url, f"expected a URL that begins with {', '.join(SCHEMES)}")
    try:
        keys = KeySet(url, properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000, clock)
    except (OSError, ValueError) as problem:
        raise ConfigError(URL, url, f"the keys cannot be read: {problem}") from None
    expected = Expected(
        tuple(properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.expected.audience") or ()),
        properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.expected.issuer"),
        properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.clock.skew.seconds"),
        properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.sub.claim.name"),
        properties.of_mechanism("OAUTHBEARER", "sasl.oauthbearer.scope.claim.name"),
    )
    return SignedTokens(keys, expected, clock.now_ms)
