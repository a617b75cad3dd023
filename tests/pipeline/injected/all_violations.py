"""Registers all injections."""

from klamm.tests.pipeline.injected import (  # noqa: F401 registers them
    allowed_changes,
    injected_violations,
    violations_of_clients,
    violations_of_guests,
)
