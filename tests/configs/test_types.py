"""Texts and values: what Java's parsers take, and how Java writes it. The tables were asked of a real Kafka 3.9.1."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.configs.definitions.types import ConfigError, ConfigType, double_text, parse, parse_double, split_list, text_of
from klamm.configs.tables.broker import BROKER, TOPICS


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("+5", 5), ("-5", -5), ("05", 5), (" 5 ", 5), ("５", 5), ("٣", 3), ("\x015\x1f", 5), ("9223372036854775807", 2**63 - 1)],
)
def test_integers(text, value):
    assert parse("k", text, ConfigType.LONG) == value


@pytest.mark.parametrize("text", ["", "+", "-", "0x10", "1_0", "5L", "5.0", "--5", "1 0", "\xa05", "9223372036854775808"])
def test_no_integers(text):
    with pytest.raises(ConfigError, match="Not a number of type LONG"):
        parse("k", text, ConfigType.LONG)


@pytest.mark.parametrize(("type_", "bits"), [(ConfigType.SHORT, 15), (ConfigType.INT, 31), (ConfigType.LONG, 63)])
def test_bounds_of_integers(type_, bits):
    assert parse("k", str(-(1 << bits)), type_) == -(1 << bits)
    assert parse("k", str((1 << bits) - 1), type_) == (1 << bits) - 1
    for outside in (1 << bits, -(1 << bits) - 1):
        with pytest.raises(ConfigError):
            parse("k", str(outside), type_)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("1", "1.0"),
        ("0.5f", "0.5"),
        ("0.5D", "0.5"),
        ("0x1p-1", "0.5"),
        (" 0.5 ", "0.5"),
        ("1e-10", "1.0E-10"),
        ("0.001", "0.001"),
        ("0.0009", "9.0E-4"),
        ("12345678.9", "1.23456789E7"),
        ("1234567.5", "1234567.5"),
        ("0.1234567890123456789", "0.12345678901234568"),
        ("1e400", "Infinity"),
        ("-Infinity", "-Infinity"),
        ("NaN", "NaN"),
        ("-0.0", "-0.0"),
        ("1e21", "1.0E21"),
        ("-123e-9", "-1.23E-7"),
        ("1.7976931348623157e308", "1.7976931348623157E308"),
    ],
)
def test_doubles(text, shown):
    assert text_of(parse("k", text, ConfigType.DOUBLE)) == shown


@pytest.mark.parametrize("text", ["", "1_0", "٣", "e5", ".", "0x1", "infinity", "nan", "1,5", "0.5 f"])
def test_no_doubles(text):
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        parse("k", text, ConfigType.DOUBLE)


@given(st.floats())
def test_written_doubles_read_back(value):
    again = parse_double(double_text(value))
    assert again == value or (math.isnan(again) and math.isnan(value))


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), (" False\t", False)])
def test_booleans(text, value):
    assert parse("k", text, ConfigType.BOOLEAN) is value
    assert text_of(value) == str(value).lower()


@pytest.mark.parametrize("text", ["yes", "1", "", "tru e"])
def test_no_booleans(text):
    with pytest.raises(ConfigError, match="Expected value to be either true or false"):
        parse("k", text, ConfigType.BOOLEAN)


@pytest.mark.parametrize(
    ("text", "value"),
    [("", ()), (" \t", ()), ("a", ("a",)), (" a , b ", ("a", "b")), ("a,", ("a", "")), (",", ("", "")), ("a b,c", ("a b", "c"))],
)
def test_lists(text, value):
    assert split_list(text) == value


def test_one_line_names_key_value_and_reason():
    with pytest.raises(ConfigError) as caught:
        BROKER["num.partitions"].parse("0")
    assert str(caught.value) == "Invalid value 0 for configuration num.partitions: Value must be at least 1"
    assert (caught.value.key, caught.value.value) == ("num.partitions", 0)
    assert str(ConfigError("k", "", "r")) == "Invalid value  for configuration k: r", "Kafka shows nothing either"
    assert str(ConfigError("k", None, "r")) == "Missing value for configuration k: r"
    assert str(ConfigError("k", ("a", "b"), "r")) == "Invalid value a,b for configuration k: r"


FIT = [
    ("compression.type", "gzip"),
    ("compression.gzip.level", "-1"),
    ("compression.gzip.level", "9"),
    ("cleanup.policy", "compact,compact"),
    ("cleanup.policy", ""),
    ("cleanup.policy", "compact , delete"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", " * "),
    ("leader.replication.throttled.replicas", "* ,"),
    ("leader.replication.throttled.replicas", ""),
    ("leader.replication.throttled.replicas", "0:1,,1:1"),
    ("leader.replication.throttled.replicas", "0:1,"),
    ("leader.replication.throttled.replicas", "99999999999:1"),
    ("message.format.version", "0.10.2.1"),
    ("message.format.version", "2.8.1-x"),
    ("message.format.version", "4.0-IV0"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("retention.ms", "-1"),
]
UNFIT = [
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("compression.gzip.level", "-2"),
    ("cleanup.policy", "compact,"),
    ("cleanup.policy", "COMPACT"),
    ("leader.replication.throttled.replicas", "none"),
    ("leader.replication.throttled.replicas", "0"),
    ("leader.replication.throttled.replicas", "0:1:2"),
    ("leader.replication.throttled.replicas", "*,0:1"),
    ("leader.replication.throttled.replicas", "0:1,*"),
    ("leader.replication.throttled.replicas", "-1:1"),
    ("leader.replication.throttled.replicas", "0 : 1"),
    ("leader.replication.throttled.replicas", "０:1"),
    ("message.format.version", "4.0"),
    ("message.format.version", ""),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("retention.ms", "-2"),
    ("segment.bytes", "13"),
    ("message.timestamp.type", "logappendtime"),
]


@pytest.mark.parametrize(("name", "text"), FIT)
def test_fit(name, text):
    TOPICS[name].parse(text)


@pytest.mark.parametrize(("name", "text"), UNFIT)
def test_unfit(name, text):
    with pytest.raises(ConfigError, match=name):
        TOPICS[name].parse(text)
