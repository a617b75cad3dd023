"""Registers all injections."""

from klamm.tests.pipeline.injected import (  # noqa: F401 registers them
    allowed_events,
    allowed_frames,
    allowed_requests,
    allowed_states,
    injected_violations,
    violations_of_clients,
    violations_of_guests,
)
