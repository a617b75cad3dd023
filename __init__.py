"""Klamm: a wire-compatible replacement for Kafka's controller broker.

Other programs use `klamm.Cluster` and `klamm.Proxy`. They are imported on first access, so that `import klamm` is fast.
"""

__version__ = "0.1.0"
__all__ = ["Cluster", "Proxy", "__version__"]
TYPE_CHECKING = False  # True for type checkers. Not imported from `typing`, which takes longer to import than the rest of this file.

if TYPE_CHECKING:
    from klamm.testing.library import Cluster
    from klamm.testing.proxies.library import Proxy
else:

    def __getattr__(name: str) -> object:
        if name not in ("Cluster", "Proxy"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import gc

        was_enabled = gc.isenabled()
        gc.disable()  # an import makes no garbage: collections would cost a sixth of its time
        try:
            if name == "Cluster":
                from klamm.testing.library import Cluster as found
            else:
                from klamm.testing.proxies.library import Proxy as found
        finally:
            if was_enabled:
                gc.enable()
        globals()[name] = found
        return found
