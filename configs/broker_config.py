"""The configuration of a broker: its properties file and the dynamic configs of /config/brokers, typed and validated.

Every value has one of four sources. In order of precedence: the broker's own entity in ZooKeeper, the default entity, the properties file,
Kafka's default. A synonym in a source with higher precedence wins.

The constructor raises ConfigError for the first invalid value. Later only `apply_dynamic` changes a BrokerConfig. It never raises: it skips
invalid stored values, and ignores all of them if they contradict each other; the caller logs the reason. The dynamic configs are kept in
any case, because DescribeConfigs shows them. `validate_dynamic` checks a requested change.

Unknown names are kept, because DescribeConfigs shows them too. Klamm's own switches are removed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from klamm.configs import rules as config_rules
from klamm.configs.definitions.blacklist import BLACKLIST
from klamm.configs.definitions.definition import ConfigKey, synonyms
from klamm.configs.definitions.types import ConfigError, Values
from klamm.configs.dynamic import check_entry, check_listener_configs, check_listener_limits, check_names, usable
from klamm.configs.listeners import ListenerConfig, ListenerConfigs, ListenerProperties, listeners_of
from klamm.configs.passwords import PasswordEncoder
from klamm.configs.releases.inter_broker_protocol import MetadataVersion
from klamm.configs.tables.broker import BROKER, MEANINGFUL, OF_AUTHORIZER, OWN, QUOTAS, SWITCHES, key_of

__all__ = ["BrokerConfig", "ConfigError", "DynamicChange", "ListenerConfig"]

_DEFAULTS: dict[str, Any] = {name: key.default for name, key in (BROKER | SWITCHES).items()}
_ON_OFF = {"on": "true", "off": "false"}


class DynamicChange(NamedTuple):
    """The result of `apply_dynamic`: names whose value changed, and one line per problem."""

    changed: frozenset[str]
    problems: tuple[str, ...]


class BrokerConfig:
    """Configs of one broker. `get` returns the typed effective value, `raw` its text.

    `static`, `dynamic_default` and `dynamic_own` are the unmodified properties of each source.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._switches = {name: _switch(name, text) for name, text in properties.items() if name in SWITCHES}
        self.release_defaults: Values = _defaults_as_of(self._switches.get("klamm.as.version"))
        """Typed defaults that differ from those of Kafka 3.9, because the broker is to be like an older release."""
        has_blacklist = self._switches.get("kip491.enable", True)
        self.own_keys: Mapping[str, ConfigKey] = {name: key for name, key in OWN.items() if has_blacklist or name != BLACKLIST.name}
        """Dynamic configs that this broker has and Kafka does not."""
        self.own_static = {name: text for name, text in properties.items() if name in SWITCHES and name in OWN}
        """The configs among `own_keys` that the properties file sets."""
        apart = SWITCHES.keys() | self.own_keys.keys()
        self.static = _with_both_ids({name: text for name, text in properties.items() if name not in apart})
        self.misplaced = tuple(name for name in properties if name in self.own_keys and name not in SWITCHES)
        """Names in the properties file that are ignored there, because they can only be set for the whole cluster."""
        self.dynamic_default: dict[str, str] = {}
        self.dynamic_own: dict[str, str] = {}
        if "zookeeper.connect" not in self.static:
            raise ConfigError("zookeeper.connect", None, "must be set")
        self._take(self.static)
        self.passwords = self._encoder("password.encoder.secret")
        """Encrypts and decrypts stored passwords; None without a secret. `former_passwords` decrypts passwords that were encrypted with the
        old secret.
        """
        self.former_passwords = self._encoder("password.encoder.old.secret")
        self.broker_id: int = self.get("broker.id")

    @property
    def kafka_4(self) -> str | None:
        """The release of Kafka 4 that the broker stands for, such as 4.4; None if it stands for an older Kafka."""
        text: str | None = self._switches.get("klamm.as.version")
        return None if text is None or not text.startswith("4.") else ".".join(text.split(".")[:2])

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Name → (lowest, highest) level of each feature that the broker supports. A 3.9 broker with ZooKeeper does not support any."""
        if self.kafka_4 is None:
            return {}
        from klamm.configs.releases.kafka4_releases import supported_features  # few brokers need it

        return supported_features(self.kafka_4)

    @property
    def first_features(self) -> Mapping[str, int]:
        """Name → level of each feature that a new cluster of such brokers begins with."""
        if self.kafka_4 is None:
            return {}
        from klamm.configs.releases.kafka4_releases import first_features  # few brokers need it

        return first_features(self.kafka_4)

    def get(self, name: str) -> Any:
        """The effective value, with the type of its table row; None if it is not set. Raises KeyError for an unknown name."""
        return self._values[name]

    def _encoder(self, secret: str) -> PasswordEncoder | None:
        return None if self.get(secret) is None else PasswordEncoder(self.get(secret), self._values)

    def of_listener(self, listener: str, name: str) -> Any:
        """The effective value for one listener: its own (`listener.name.<listener>.<name>`), or the value for all listeners."""
        text = self._effective.get(f"listener.name.{listener.lower()}.{name}")
        return self.get(name) if text is None else BROKER[name].parse(text)

    def default_of(self, key: ConfigKey) -> Any:
        """The typed value of a broker config that no source sets."""
        return self.release_defaults.get(key.name, key.default)

    def raw(self, name: str) -> str | None:
        """The text in the source with the highest precedence that sets this name; None if it is not set."""
        return self._effective.get(name)

    def apply_dynamic(self, default: Mapping[str, str], own: Mapping[str, str]) -> DynamicChange:
        """Apply the configs of the default entity and of this broker. If they contradict each other, none is applied."""
        self.dynamic_default, problems = self.usable(default, False)
        self.dynamic_own, own_problems = self.usable(own, True)
        problems += own_problems
        before = self._values
        properties = self.overlaid(self.dynamic_default, self.dynamic_own)
        try:
            self._check_change(properties)
        except ConfigError as error:
            return DynamicChange(frozenset(), (*problems, f"dynamic configs are ignored: {error}"))
        self._take(properties)
        changed = frozenset(name for name, value in self._values.items() if before[name] != value)
        return DynamicChange(changed, tuple(problems))

    def usable(self, stored: Mapping[str, str], per_broker: bool) -> tuple[dict[str, str], list[str]]:
        """The valid entries of this broker's entity, or of the default entity, with decrypted passwords; and one line for each invalid
        entry.
        """
        return usable(stored, per_broker, self.passwords, self.own_keys)

    def key_of(self, name: str) -> ConfigKey | None:
        """The table row of a config of Kafka or of Klamm; None for an unknown name."""
        return key_of(name) or self.own_keys.get(name)

    def validate_dynamic(self, properties: Mapping[str, str], per_broker: bool) -> tuple[ListenerProperties, ...]:
        """Validate the complete configs of this broker's entity, or of the default entity. Returns the resulting listeners with their
        configs. Raises ConfigError.
        """
        check_names(properties, self.own_keys)
        for name, text in properties.items():
            check_entry(name, text, per_broker, self.own_keys)
        default, own = (self.dynamic_default, properties) if per_broker else (properties, self.dynamic_own)
        overlaid = self.overlaid(default, own)
        return tuple(ListenerProperties.of(one, overlaid) for one in self._check_change(overlaid).listeners)

    def _check_change(self, properties: Mapping[str, str]) -> ListenerConfigs:
        """Validate a change of the running broker to these properties. Returns the resulting listeners. Raises ConfigError."""
        proposed = self._typed(properties)
        listeners = check_values(proposed, properties)
        check_listener_limits(self._effective, properties, self._listeners)
        config_rules.check_dynamic(self._values, proposed)
        check_listener_configs(self.static, self._effective, properties, self._listeners, listeners)
        return listeners

    def overlaid(self, default: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
        """The properties of the file, overridden by these dynamic configs. A name removes its synonyms in sources with lower precedence."""
        properties = dict(self.static)
        for overlay in (default, own):
            for name, text in overlay.items():
                for weaker in synonyms(name, across_listeners=False):
                    properties.pop(weaker, None)
                properties[name] = text
        return properties

    def _take(self, properties: dict[str, str]) -> None:
        values = self._typed(properties)
        values |= {name: key.parse(self.dynamic_own[name]) if name in self.dynamic_own else None for name, key in QUOTAS.items()}
        self._listeners = check_values(values, properties)
        self._values = values
        self._effective = properties

    def _typed(self, properties: Mapping[str, str]) -> dict[str, Any]:
        values = _DEFAULTS | dict(self.release_defaults) | self._switches
        for name, text in properties.items():
            key = BROKER.get(name) or (OWN.get(name) if name in SWITCHES else None)
            if key is not None:
                values[name] = key.parse(text)
        return values

    @property
    def effective(self) -> Mapping[str, str]:
        """All effective properties as text, including unknown ones."""
        return self._effective

    @property
    def values(self) -> Values:
        """All effective values, typed."""
        return self._values

    @property
    def listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners to open."""
        return self._listeners.listeners

    @property
    def advertised_listeners(self) -> tuple[ListenerConfig, ...]:
        """The advertised listeners. A host is None if it is not set anywhere; a port is 0 if a free port is used."""
        return self._listeners.advertised

    @property
    def inter_broker_listener_name(self) -> str:
        return self._listeners.inter_broker

    @property
    def control_plane_listener_name(self) -> str | None:
        return self._listeners.control_plane

    @property
    def listener_security_protocol_map(self) -> Mapping[str, str]:
        """Security protocol by listener name."""
        return self._listeners.security_protocols

    @property
    def inter_broker_protocol_version(self) -> MetadataVersion:
        return MetadataVersion.of(self.get("inter.broker.protocol.version"))

    @property
    def is_narrowed(self) -> bool:
        """Whether this broker offers fewer APIs or versions than Klamm has."""
        return self.get("klamm.as.version") is not None or self.get("klamm.api.versions") is not None

    @property
    def is_registerbroker_on(self) -> bool:
        """Whether brokers can register with this broker if it is the controller. This needs topic ids for the metadata log (IBP 2.8)."""
        return bool(self.get("registerbroker.enable")) and self.inter_broker_protocol_version.has_topic_ids

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return config_rules.log_dirs(self._values)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Unknown names in the properties file."""
        return tuple(name for name in self.static if key_of(name) is None and name not in OF_AUTHORIZER)

    @property
    def without_meaning(self) -> tuple[str, ...]:
        """Kafka configs in the properties file that Klamm does not use."""
        return tuple(name for name in self.static if key_of(name) is not None and not MEANINGFUL.intersection(synonyms(name)))


def check_values(values: Values, properties: Mapping[str, str]) -> ListenerConfigs:
    """Check rules that involve several configs, and return the listeners. Raises ConfigError."""
    config_rules.check(values)
    return listeners_of(values, properties)


def _defaults_as_of(version: str | None) -> Values:
    if version is None:
        return {}
    from klamm.configs.release_defaults import defaults_of  # few brokers need the tables
    from klamm.configs.releases.kafka_releases import release_of

    release = release_of(version)
    return {} if release is None else defaults_of(release)


def _with_both_ids(properties: dict[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are synonyms."""
    ids: Iterable[tuple[str, str]] = (("broker.id", "node.id"), ("node.id", "broker.id"))
    for given, missing in ids:
        if given in properties and missing not in properties:
            properties[missing] = properties[given]
    return properties


def _switch(name: str, text: str) -> Any:
    """The value of one of Klamm's own switches. A boolean can also be `on` or `off`."""
    return SWITCHES[name].parse(_ON_OFF.get(text.strip().lower(), text))
