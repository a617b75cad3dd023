"""Fixtures for stories of tools for security, and the words that they are told with."""

from __future__ import annotations

from klamm.tests.security import security_words
from klamm.tests.stories.both.fixtures import *  # noqa: F403 that is what it is for
from klamm.tests.stories.exact import exact_words

assert security_words.TOOLS and exact_words.WITHIN_S  # importing them enters their words
