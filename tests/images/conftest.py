"""The images, built once for all tests of this folder."""

from __future__ import annotations

import pytest

from klamm.tests.images.containers import build_images


@pytest.fixture(scope="session")
def images() -> None:
    """All images are built from the checkout."""
    build_images()
