"""JAAS texts of configs, such as `listener.name.sasl_ssl.plain.sasl.jaas.config`: one login module with its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" user_admin="secret";

The rules are those of `JaasConfig` of Apache Kafka 3.9.1: words of letters, digits, `.`, `-`, `_`, `$` and beyond ASCII, texts in double or
single quotes, comments as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r""" | (?P<word>[A-Za-z0-9.\-_$\u00a0-\U0010ffff]+) | (?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})


class LoginModule(NamedTuple):
    """A login module: its class and its options."""

    name: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> LoginModule:
    """The login module of a text. Raises ValueError, whose text never has a value of an option."""
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    while tokens:
        name = tokens.pop(0)
        flag = tokens.pop(0) if tokens else ""
        if flag.upper() not in _FLAGS:
            raise ValueError(f"login module {name} needs a control flag: required, requisite, sufficient or optional")
        options: dict[str, str] = {}
        while tokens and tokens[0] != ";":
            key = tokens.pop(0)
            if len(tokens) < 2 or tokens[0] != "=" or tokens[1] in ("=", ";"):
                raise ValueError(f"option {key} of login module {name} has no value")
            options[key] = str(tokens[1])
            del tokens[:2]
        if not tokens:
            raise ValueError(f"the entry of login module {name} does not end with a semicolon")
        del tokens[0]
        modules.append(LoginModule(name, options))
    if len(modules) != 1:
        raise ValueError(f"the text has {len(modules)} login modules instead of one")
    return modules[0]


class _Quoted(str):
    """A text in quotes: never a mark, whatever it contains."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Quoted) and str.__eq__(self, other)

    __hash__ = str.__hash__


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"the character at position {position + 1} is not expected")
        position = match.end()
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append(_Quoted(_ESCAPE.sub(_unescaped, quoted)))
        elif match["word"] or match["mark"]:
            tokens.append(match["word"] or match["mark"])
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)
