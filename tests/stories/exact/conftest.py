"""Fixtures for stories whose answers are compared field by field, texts included."""

from __future__ import annotations

from klamm.tests.stories.both.fixtures import *  # noqa: F403 that is what it is for
from klamm.tests.stories.exact import exact_words

assert exact_words.WITHIN_S  # importing it enters its words
