"""Cipher suites: the names of Java, which are those of IANA, as the names of OpenSSL."""

from __future__ import annotations

import re
from collections.abc import Sequence

OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3 that OpenSSL offers."""

AS_JAVA = "DEFAULT:!aNULL:!eNULL:!PSK:!SRP:!3DES:!RC4:!MD5"
"""The suites of TLS 1.2 that a JVM 17 takes by default, in the words of OpenSSL: those without forward secrecy or with CBC too, which
Python leaves out. Which of them the security level of OpenSSL allows stays as it is.
"""

_SUITE = re.compile(r"(?:TLS|SSL)_(ECDHE|DHE|ECDH|DH)?_?(RSA|ECDSA|DSS)?_WITH_(.+)")
_AES = re.compile(r"AES_(\d+)")


def openssl_name(suite: str) -> str:
    """The name of a suite below TLS 1.3 for OpenSSL; a name of OpenSSL stays as it is."""
    match = _SUITE.fullmatch(suite)
    if match is None:
        return suite
    exchange, signature, cipher = match.groups()
    prefix = "" if exchange is None else f"{exchange}-{signature}-"
    cipher = _AES.sub(r"AES\1", cipher)
    cipher = cipher.replace("_CBC", "").removesuffix("_SHA256") if cipher.startswith("CHACHA20") else cipher.replace("_CBC", "")
    return prefix + cipher.replace("_", "-")


def below_tls_1_3(suites: Sequence[str]) -> list[str]:
    """The suites that are not of TLS 1.3, as OpenSSL names them."""
    return [openssl_name(suite) for suite in suites if suite not in OF_TLS_1_3]
