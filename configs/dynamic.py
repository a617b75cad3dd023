"""Validates dynamic broker configs: each entry is checked before it is written to /config/brokers, and again when it is read.

A request with an invalid entry is refused. An invalid stored value is skipped, because another broker or a tool may have written it.
Unknown names are allowed in both cases. The config of one listener (`listener.name.<name>.<config>`) has the type of the config after its
prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klamm.configs import rules as config_rules
from klamm.configs.definitions.definition import DEFAULT_ONLY, PER_BROKER, READ_ONLY, ConfigKey, without_listener
from klamm.configs.definitions.types import ConfigError, ConfigType
from klamm.configs.listeners import ListenerConfigs
from klamm.configs.passwords import CannotDecrypt, PasswordEncoder
from klamm.configs.tables.broker import BROKER, QUOTAS, key_of

DYNAMIC: Mapping[str, ConfigKey] = {name: key for name, key in BROKER.items() if key.mode is not READ_ONLY}
# Only allowed for one listener: key stores, trust stores and keys of TLS.
_PER_LISTENER = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
# The only configs of a listener that the default entity can have.
_CLUSTER_WIDE_OF_LISTENERS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
# If one of these changes, the broker checks its listeners again.
_OF_LISTENERS = {name for name, key in DYNAMIC.items() if key.mode is PER_BROKER} | _CLUSTER_WIDE_OF_LISTENERS

_KAFKAS = ("org.apache.kafka.", "kafka.")
"""Packages of the classes that a Kafka without additions has."""

_SMALL_SET = 4
"""Scala writes `Set(…)` for sets of up to this size."""


def check_names(names: Iterable[str], own: Mapping[str, ConfigKey]) -> None:
    """Check that all these configs can change at run time, and without a listener prefix. Raises ConfigError with all names that cannot."""
    kafkas = [name for name in names if name not in own]
    fixed = [name for name in kafkas if name in BROKER and BROKER[name].mode is READ_ONLY]
    if fixed:
        text = f"Cannot update these configs dynamically: {_set(fixed)}"
        raise ConfigError(fixed[0], None, "cannot change while the broker runs", text)
    secured = [name for name in kafkas if name in _PER_LISTENER]
    if secured:
        what = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ConfigError(secured[0], None, "belongs to a listener", f"{what}: HashSet({', '.join(secured)})")


def _set(names: list[str]) -> str:
    """A set of names as Scala writes it."""
    return f"{'Set' if len(names) <= _SMALL_SET else 'HashSet'}({', '.join(names)})"


def check_entry(name: str, text: str, per_broker: bool, own: Mapping[str, ConfigKey]) -> None:
    """Check one entry of an entity. `own` are Klamm's own configs. Raises ConfigError, never with a password in its text."""
    shown = _shown(name, text)
    key = own.get(name)
    if key is not None:
        if per_broker and key.mode is DEFAULT_ONLY:
            raise ConfigError(name, shown, "can be set for all brokers at once only")
        key.parse(text)
        return
    key = BROKER.get(name)
    check_names((name,), own)
    base = without_listener(name)
    typed = DYNAMIC.get(base or name) or QUOTAS.get(base or name)
    if typed is not None:
        _check_class(typed, typed.parse(text))
    if per_broker:
        return
    if (key is not None and key.mode is PER_BROKER) or (base is not None and base not in _CLUSTER_WIDE_OF_LISTENERS):
        text = f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
        raise ConfigError(name, shown, "can be set for a single broker only", text)


def _check_class(key: ConfigKey, value: str | None) -> None:
    """Raises ConfigError for a class that is not Kafka's: there are no others here, and Kafka refuses a class that it does not find."""
    if key.type is ConfigType.CLASS and value is not None and not value.startswith(_KAFKAS):
        raise ConfigError(key.name, value, f"Class {value} could not be found.")


def check_listener_limits(before: Mapping[str, str], after: Mapping[str, str], old: ListenerConfigs) -> None:
    """Check the limits of connections of each open listener, which are those of the broker by default. The broker's own are not checked.
    Raises ConfigError.
    """
    for listener in old.listeners:
        for limit in ("max.connections", "max.connection.creation.rate"):
            _check_limit(limit, f"listener.name.{listener.name.lower()}.", before, after)


def _check_limit(name: str, prefix: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    of_all = BROKER[name]
    current, proposed = (of_all.parse(p.get(prefix + name) or p.get(name) or str(of_all.default)) for p in (before, after))
    config_rules.check_limit(name, current, proposed)


def check_listener_configs(
    static: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str], old: ListenerConfigs, new: ListenerConfigs
) -> None:
    """Check a change of properties while listeners are open. Raises ConfigError.

    The config of one listener must be valid for the config after its prefix. An open listener cannot change its protocol or its configs
    from the file, except key stores, trust stores and limits. As in Kafka, this is checked only if a config for all listeners changes.
    """
    protocols = {listener.name: listener.security_protocol for listener in new.listeners}
    looks = any(before.get(name) != after.get(name) for name in _OF_LISTENERS)
    for listener in old.listeners:
        if listener.name not in protocols:
            continue
        prefix = f"listener.name.{listener.name.lower()}."
        _check_limit("num.network.threads", prefix, before, after)
        for name, text in after.items():
            base = name.removeprefix(prefix)
            known = BROKER.get(base) or BROKER.get(base.partition(".")[2])
            if base != name and known is not None:
                known.parse(text)
        if not looks:
            continue
        for name in sorted({name for name in (*static, *after) if name.startswith(prefix)}):
            free = name.removeprefix(prefix) in _PER_LISTENER | _CLUSTER_WIDE_OF_LISTENERS
            if not free and static.get(name) != after.get(name):
                raise ConfigError(name, _shown(name, after.get(name)), f"listener {listener.name} cannot change it while it is open")
        if protocols[listener.name] != listener.security_protocol:
            key = "listener.security.protocol.map"
            raise ConfigError(key, after.get(key), f"listener {listener.name} cannot change its protocol while it is open")


def usable(
    stored: Mapping[str, str], per_broker: bool, passwords: PasswordEncoder | None, own: Mapping[str, ConfigKey]
) -> tuple[dict[str, str], list[str]]:
    """The valid entries of an entity, with decrypted passwords, and one line for each skipped entry.

    `own` as in `check_entry`.
    """
    taken: dict[str, str] = {}
    problems: list[str] = []
    for name, text in stored.items():
        try:
            check_entry(name, text, per_broker, own)
        except ConfigError as error:
            problems.append(f"a stored config is ignored: {error}")
            continue
        try:
            taken[name] = _decrypted(text, passwords) if is_password(name) else text
        except CannotDecrypt as error:
            problems.append(f"a stored config is ignored: the password {name} cannot be decrypted: {error}")
    return taken, problems


def _decrypted(text: str, passwords: PasswordEncoder | None) -> str:
    if passwords is None:
        raise CannotDecrypt("password.encoder.secret is not set")
    return passwords.decode(text)


def is_password(name: str) -> bool:
    """Whether the value is encrypted before it is stored."""
    key = key_of(name)
    return key is not None and key.sensitive


def _shown(name: str, text: str | None) -> str | None:
    """The value for an error text; None for a password, as in Kafka."""
    return "[hidden]" if text is not None and is_password(name) else text
