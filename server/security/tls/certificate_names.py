"""Who a certificate is: its distinguished name as Java writes it (RFC 2253), and the user that `ssl.principal.mapping.rules` make of it.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT

Names and rules are those of `X500Principal.getName()` of Java 17 and of `SslPrincipalMapper` of Apache Kafka 3.9.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS = {12: "utf-8", 19: "ascii", 20: "latin-1", 22: "ascii", 27: "latin-1", 30: "utf-16-be"}
_ESCAPED = re.compile(r'[,=+<>#;"\\]')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)")

Element = tuple[int, bytes, bytes]
"""An element in DER: its tag, its content, and all its bytes."""


def distinguished_name(certificate: bytes) -> str:
    """The distinguished name of the subject of a certificate in DER, the most specific part first. Raises ValueError."""
    (_, to_be_signed, _), *_ = _elements(next(_elements(certificate))[1])
    fields = list(_elements(to_be_signed))
    if fields[0][0] == 0xA0:  # the version
        del fields[0]
    parts = [_part(content) for _, content, _ in _elements(fields[4][1])]
    return ",".join(reversed(parts))


def _part(attributes: bytes) -> str:
    """One part of the name; it may have several attributes."""
    return "+".join(_attribute(*_elements(content)) for _, content, _ in _elements(attributes))


def _attribute(kind: Element, value: Element) -> str:
    keyword = _KEYWORDS.get(_object_id(kind[1]))
    if keyword is None or value[0] not in _TEXTS:
        return f"{keyword or _object_id(kind[1])}=#{value[2].hex()}"
    text = value[1].decode(_TEXTS[value[0]], "replace")
    escaped = _ESCAPED.sub(r"\\\g<0>", text).replace("\0", "\\00")
    body = escaped.strip(" ")
    if not body:
        return f"{keyword}={escaped.replace(' ', chr(92) + ' ')}"
    before, _, after = escaped.partition(body)
    return f"{keyword}=" + "\\ " * len(before) + body + "\\ " * len(after)


def _object_id(data: bytes) -> str:
    numbers, value = [min(data[0] // 40, 2)], 0
    numbers.append(data[0] - 40 * numbers[0])
    for byte in data[1:]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))


def _elements(data: bytes) -> Iterator[Element]:
    """The elements in these bytes. Raises ValueError if they are cut off."""
    position = 0
    while position < len(data):
        begin = position
        if position + 2 > len(data):
            raise ValueError("the certificate is cut off")
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise ValueError("the certificate is cut off")
        yield tag, data[position:end], data[begin:end]
        position = end


class Rule(NamedTuple):
    """One mapping rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user for a distinguished name; None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        user = _REFERENCE.sub(lambda found: found[1] or match[int(found[2])] or "", self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of `ssl.principal.mapping.rules`. Raises ValueError."""
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"invalid rule: {text[position:]}")
        default, pattern, replacement, case = match.groups()
        try:
            rules.append(Rule() if default else Rule(re.compile(pattern), replacement, case))
        except re.error as problem:
            raise ValueError(f"invalid rule: {text[position:]}: {problem}") from None
        references = [int(number) for _, number in _REFERENCE.findall(replacement or "") if number]
        if rules[-1].pattern is not None and any(number > rules[-1].pattern.groups for number in references):
            raise ValueError(f"invalid rule: {text[position:]}: it has no such group")
        position = match.end()
    return tuple(rules) or (Rule(),)


def user_of(name: str, rules: tuple[Rule, ...]) -> str:
    """The user for a distinguished name. Raises ValueError if no rule matches."""
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return user
    raise ValueError(f"no rule of ssl.principal.mapping.rules matches {name}")
