"""Copy to your tests. The fixture `klamm` comes with `pip install 'klamm[testing]'`; nothing has to be imported for it."""

import os

import pytest


@pytest.fixture(scope="session")
def bootstrap_servers(request):
    """The cluster of KAFKA_BOOTSTRAP_SERVERS, such as a service container, or else one of Klamm that starts with the first test."""
    return os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or request.getfixturevalue("klamm_cluster").bootstrap_servers
