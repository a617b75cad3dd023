"""Klamm: a wire-compatible stand-in for Kafka's controller broker.

`klamm.Cluster` is what other programs use; it is imported when it is asked for, so that `import klamm` costs nothing.
"""

__version__ = "0.1.0"
__all__ = ["Cluster", "__version__"]
TYPE_CHECKING = False  # True for type checkers; `typing` itself takes longer to import than all else here

if TYPE_CHECKING:
    from klamm.server.local.library import Cluster
else:

    def __getattr__(name: str) -> object:
        if name == "Cluster":
            from klamm.server.local.library import Cluster

            globals()[name] = Cluster
            return Cluster
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
