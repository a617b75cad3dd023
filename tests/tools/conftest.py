"""Fixtures for stories of tools, and the words that they are told with."""

from __future__ import annotations

from klamm.tests.stories.both.fixtures import *  # noqa: F403 that is what it is for
from klamm.tests.tools import tool_words

assert tool_words.TOOLS  # importing it enters its words
