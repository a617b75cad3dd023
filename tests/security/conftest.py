"""Fixtures for stories of tools for security, and the words that they are told with."""

from __future__ import annotations

from klamm.tests.security import security_words
from klamm.tests.stories.both.fixtures import *  # noqa: F403 that is what it is for

assert security_words.TOOLS  # importing it enters its words
