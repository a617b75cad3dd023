"""Klamm: a wire-compatible replacement for Kafka's controller broker.

Other programs use `klamm.Cluster` and `klamm.Proxy`. They are imported on first access, so that `import klamm` is fast.
"""

__version__ = "0.1.0"
__all__ = ["Cluster", "Proxy", "__version__"]
TYPE_CHECKING = False  # True for type checkers. Not imported from `typing`, which takes longer to import than the rest of this file.

if TYPE_CHECKING:
    from klamm.testing.library import Cluster
    from klamm.testing.proxied import Proxy
else:

    def __getattr__(name: str) -> object:
        if name == "Cluster":
            from klamm.testing.library import Cluster

            globals()[name] = Cluster
            return Cluster
        if name == "Proxy":
            from klamm.testing.proxied import Proxy

            globals()[name] = Proxy
            return Proxy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
