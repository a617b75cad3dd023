"""TLS of a proxy: its own certificate towards clients, and how it checks the certificates of brokers."""

from __future__ import annotations

import ssl
from pathlib import Path

from klamm.seams.value_class import dataclass


class BadTls(ValueError):
    """A certificate, a key or an authority that cannot be used. The message is one line."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How clients connect: files in PEM. `authority`: only clients with a certificate that it has signed."""

    certificate: Path
    key: Path | None = None
    authority: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The context of the listeners. Raises BadTls."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load(context, self.certificate, self.key)
        if self.authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            _trust(context, self.authority)
        return context


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """How the proxy connects to brokers: files in PEM. Without an `authority` those of the system are trusted. A broker's name is compared
    with its certificate unless `any_name`; with `unverified` nothing is checked. `certificate` is shown to brokers that ask for one.
    """

    authority: Path | None = None
    any_name: bool = False
    unverified: bool = False
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """The context of connections to brokers. Raises BadTls."""
        if self.key is not None and self.certificate is None:
            raise BadTls(f"the key {self.key} belongs to a certificate, which is not given")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = not (self.any_name or self.unverified)
        context.verify_mode = ssl.CERT_NONE if self.unverified else ssl.CERT_REQUIRED
        if self.authority is not None:
            _trust(context, self.authority)
        else:
            context.load_default_certs()
        if self.certificate is not None:
            _load(context, self.certificate, self.key)
        return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    try:
        context.load_cert_chain(certificate, key, lambda: "")  # a key with a password is an error, not a question
    except OSError as error:
        what = certificate if key is None else f"{certificate} with the key {key}"
        raise BadTls(f"the certificate {what} cannot be used: {_why(error)}") from None


def _trust(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except OSError as error:
        raise BadTls(f"the certificates of authorities in {authority} cannot be used: {_why(error)}") from None


def _why(error: OSError) -> str:
    return str(error.reason if isinstance(error, ssl.SSLError) and error.reason else error.strerror or error)
