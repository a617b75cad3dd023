"""Java's own Properties.load reads random texts, and Klamm reads the same from them."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

import pytest

from klamm.configs.properties import PropertiesError, parse_properties
from klamm.machine.java import find_java

PROGRAM = """
import java.io.*;
import java.util.*;

public class LoadProperties {
    public static void main(String[] arguments) throws IOException {
        BufferedReader texts = new BufferedReader(new InputStreamReader(System.in));
        Base64.Encoder base64 = Base64.getEncoder();
        StringBuilder out = new StringBuilder();
        for (String line; (line = texts.readLine()) != null; out.append("\\n")) {
            Properties read = new Properties();
            try {
                read.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
            } catch (IllegalArgumentException malformed) {
                out.append("malformed");
                continue;
            }
            for (String key : read.stringPropertyNames()) {
                out.append(base64.encodeToString(key.getBytes("UTF-16BE"))).append(" ");
                out.append(base64.encodeToString(read.getProperty(key).getBytes("UTF-16BE"))).append(" ");
            }
        }
        System.out.print(out);
    }
}
"""
ALPHABET = "\\\\\\\n\r=: \t\f#!ab1u00e9dt\u00e9"
"""Backslashes, line ends, separators and comments are frequent."""
TEXTS = 30_000


@pytest.mark.slow
def test_java_reads_the_same_from_random_texts(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    drawn = random.Random(seed)
    texts = ["".join(drawn.choices(ALPHABET, k=drawn.randint(0, 16))) for _ in range(TEXTS)]
    program = tmp_path / "LoadProperties.java"
    program.write_text(PROGRAM)
    lines = "".join(base64.b64encode(text.encode("latin-1")).decode() + "\n" for text in texts)
    run = subprocess.run([find_java(oldest=17).launcher, program], input=lines, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"this needs a JDK, such as `make reference` does: {run.stderr}"
    for text, read in zip(texts, run.stdout.splitlines(), strict=True):
        try:
            ours = parse_properties(text)
        except PropertiesError:
            ours = None
        assert ours == properties(read), f"{text!r} (seed {seed})"


def properties(read: str) -> dict[str, str] | None:
    """A line of the program."""
    if read == "malformed":
        return None
    words = [base64.b64decode(word).decode("utf-16-be", "replace") for word in read.split(" ")[:-1]]
    return dict(zip(words[::2], words[1::2], strict=True))
