"""`klamm.testing`: a cluster for tests of clients, with faults, holds, waits and virtual time, and a plugin for pytest.

Names are imported on first access: the plugin is loaded by every run of pytest where Klamm is installed.
"""

__all__ = ["AsyncCluster", "BlockingCluster", "Cluster", "Refused", "WaitTimedOut"]
TYPE_CHECKING = False

if TYPE_CHECKING:
    from klamm.control.refusal import Refused
    from klamm.testing.async_cluster import AsyncCluster
    from klamm.testing.blocking_cluster import BlockingCluster
    from klamm.testing.library import Cluster
    from klamm.testing.waits import WaitTimedOut
else:
    _MODULES = {
        "AsyncCluster": "klamm.testing.async_cluster", "BlockingCluster": "klamm.testing.blocking_cluster",
        "Cluster": "klamm.testing.library", "Refused": "klamm.control.refusal", "WaitTimedOut": "klamm.testing.waits",
    }

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            from importlib import import_module

            return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
