"""Registers all injections."""

from klamm.tests.pipeline.injected import (  # noqa: F401 registers them
    allowed_events,
    allowed_frames,
    allowed_requests,
    allowed_states,
    violations_of_bodies,
    violations_of_clients,
    violations_of_events,
    violations_of_exchanges,
    violations_of_frames,
    violations_of_guests,
    violations_of_logs,
    violations_of_requests,
    violations_of_states,
)
