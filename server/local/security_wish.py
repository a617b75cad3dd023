"""The arguments `tls`, `sasl`, `acls` and `users` of clusters, and what is made of them when a cluster starts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from klamm.server.local.arguments import SASL_MECHANISMS, USER, BadArgument

if TYPE_CHECKING:
    from klamm.server.local.made_security import MadeSecurity

_OWN = frozenset(
    {"listener.security.protocol.map", "security.inter.broker.protocol", "sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol"}
)
_TLS = frozenset({"ssl.keystore.type", "ssl.keystore.location", "ssl.truststore.type", "ssl.truststore.location"})
_UNQUOTABLE = re.compile(r"[\"\\\r\n]")
_ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": f"User:{USER}"}


class SecurityWish:
    """How a cluster at a host is to be secured."""

    def __init__(self, tls: bool, sasl: str | None, acls: bool, users: Mapping[str, str], host: str) -> None:
        self._tls, self._sasl, self._acls, self._users, self._host = tls, sasl, acls, users, host
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """Files of a cluster without a data directory; removed with this value."""

    @property
    def is_any(self) -> bool:
        """Whether anything is to be secured."""
        return self._tls or self._sasl is not None

    def check(self, config: Mapping[str, str]) -> None:
        """Raises BadArgument, also for a config that would be set twice."""
        if self._sasl is not None and self._sasl not in SASL_MECHANISMS:
            raise BadArgument("sasl", f"{self._sasl!r} is not one of {', '.join(SASL_MECHANISMS)}")
        if self._acls and self._sasl is None:
            raise BadArgument("acls", "without sasl all clients are ANONYMOUS, and brokers too")
        if self._users and self._sasl is None:
            raise BadArgument("users", "without sasl nobody authenticates")
        self._check_users()
        own = _OWN if self.is_any else frozenset()
        own |= _TLS if self._tls else frozenset()
        own |= _ACLS.keys() if self._acls else frozenset()
        jaas = f".{self._sasl}.sasl.jaas.config".lower()
        twice = sorted(name for name in config if name in own or name.endswith(jaas))
        if twice:
            raise BadArgument("config", f"{twice[0]} is set by tls, sasl and acls")

    def _check_users(self) -> None:
        """Raises BadArgument. The text shows no password."""
        for user, password in self._users.items():
            if not user or not password:
                raise BadArgument("users", "a name or a password is empty")
            if user == USER:
                raise BadArgument("users", f"{USER} is the user of the brokers, with a password of its own")
            if self._sasl == "PLAIN" and _UNQUOTABLE.search(user + password):
                raise BadArgument("users", f"name or password of {user!r} has a quote, backslash or line break, which PLAIN cannot have")

    def make(self, data_dir: Path | None) -> MadeSecurity:
        """Certificates, users and configs; nothing where nothing is to be secured."""
        from klamm.seams.clock import SYSTEM_CLOCK
        from klamm.server.local.made_security import MadeSecurity, add_users, make_security

        if not self.is_any:
            return MadeSecurity({}, {}, {})
        if data_dir is None and self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="klamm-security-")
        folder = Path(self._folder.name) if self._folder is not None else Path(data_dir or "") / "security"
        made = make_security(folder, self._host, tls=self._tls, mechanism=self._sasl, now_ms=SYSTEM_CLOCK.now_ms())
        if self._sasl is not None:
            made = add_users(made, self._sasl, self._users)
        return made._replace(config=made.config | (_ACLS if self._acls else {}))
