"""Fixtures for stories: all of this folder, told to Klamm and told to a real Kafka."""

from __future__ import annotations

from klamm.tests.stories.both.fixtures import *  # noqa: F403 that is what it is for
