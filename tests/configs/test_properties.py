"""Properties files as Java reads them. The odd cases were asked of java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klamm.configs.properties import PropertiesError, parse_properties, read_properties

CASES = [
    ("a=b", {"a": "b"}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a\t\f b", {"a": "b"}),
    ("a = : b", {"a": ": b"}),
    ("a", {"a": ""}),
    ("=b", {"": "b"}),
    ("  a = b  ", {"a": "b  "}),
    ("# a=b\n! c=d\n  # e=f\n\n \t\n", {}),
    ("a=b#c", {"a": "b#c"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=b\\\n   c", {"a": "bc"}),
    ("a=b\\\r\n#c", {"a": "b#c"}),
    ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\", {"a": "b"}),
    ("\\", {"": ""}),
    ("a\n\\\r\n", {"a": ""}),
    ("\\\r#b", {}),
    ("#::\na", {"a": ""}),
    ("# x\\\na=b", {"a": "b"}),
    ("a\\=b=c", {"a=b": "c"}),
    ("a\\ b c", {"a b": "c"}),
    ("a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
    ("a=\\u0041\\u00e9", {"a": "Aé"}),
    ("a=\\ud83d\\ude00", {"a": "😀"}),
    ("listeners=PLAINTEXT://h:1,SSL://h:2", {"listeners": "PLAINTEXT://h:1,SSL://h:2"}),
]


@pytest.mark.parametrize(("text", "properties"), CASES)
def test_cases(text, properties):
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uXYZW", "\\u=1"])
def test_malformed_escape(text):
    with pytest.raises(PropertiesError, match="malformed"):
        parse_properties(text)


def test_malformed_escape_in_a_password_does_not_show_it():
    with pytest.raises(PropertiesError) as refused:
        parse_properties(r"a=1\n  sasl.jaas.config = password=\"hunter2\uzz\"".replace(r"\n", "\n"))
    assert str(refused.value) == r"malformed \u in the line of 'sasl.jaas.config'"


def escaped(text: str, in_key: bool) -> str:
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if in_key:
        special |= {"=": "\\=", ":": "\\:", " ": "\\ ", "#": "\\#", "!": "\\!"}
    out = "".join(special.get(character, character) for character in text)
    return f"\\{out}" if out.startswith(" ") else out


ANY_TEXT = st.text(st.characters(max_codepoint=0xFF))


@given(st.dictionaries(ANY_TEXT, ANY_TEXT), st.sampled_from(["=", ":", " = ", "\t:", " :  "]), st.sampled_from(["\n", "\r", "\r\n"]))
def test_what_is_escaped_comes_back(properties, separator, line_end):
    text = line_end.join(f"{escaped(key, True)}{separator}{escaped(value, False)}" for key, value in properties.items())
    assert parse_properties(text) == properties


@given(st.text(st.sampled_from("\\\n\r=: \t\f#!ab1u00e9")))
def test_any_text_is_read_or_refused(text):
    try:
        parse_properties(text)
    except PropertiesError as error:
        assert "\n" not in str(error)


def test_files_are_latin_1(tmp_path):
    file = tmp_path / "server.properties"
    file.write_bytes(b"a=\xe9\r\nb=2\r\n")
    assert read_properties(file) == {"a": "é", "b": "2"}
    file.write_bytes(b"a=\\u1")
    with pytest.raises(PropertiesError, match=r"server\.properties: malformed"):
        read_properties(file)
    with pytest.raises(FileNotFoundError):
        read_properties(tmp_path / "missing")
