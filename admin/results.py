"""What the methods of the admin client return.

A change that a broker judges one by one (partitions, brokers, configs) has a `Result`: an outcome for each of them, None or an error.
Nothing is raised for them until somebody wants all or a certain one to have succeeded. A description has a `Described`: what was
described, and the errors of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from klamm.admin.errors import AdminError, response_error
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class Result(Generic[K]):
    """The outcome of each key of a change."""

    def __init__(self, outcomes: Mapping[K, AdminError | None]) -> None:
        self._outcomes = dict(outcomes)

    def values(self) -> dict[K, AdminError | None]:
        """Every key with its error, None where it succeeded; in the order of the request."""
        return dict(self._outcomes)

    def errors(self) -> dict[K, AdminError]:
        """The keys that failed, with their errors."""
        return {key: error for key, error in self._outcomes.items() if error is not None}

    def all(self) -> None:
        """Raise the first error; return when every key succeeded (also when there was none)."""
        for error in self._outcomes.values():
            if error is not None:
                raise error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._outcomes!r})"


class PartitionResult(Result[TopicPartition]):
    """The outcome of each partition."""

    def partition_result(self, partition: tuple[str, int]) -> None:
        """Raise the error of a partition; return when it succeeded.

        Raises UnknownTopicOrPartitionError (code UNKNOWN_TOPIC_OR_PARTITION) when nothing was attempted for it: it was not requested, or,
        of an election of all partitions, its leader was the preferred one already (R183-26).
        """
        wanted = TopicPartition(*partition)
        if wanted not in self._outcomes:
            raise response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing was attempted for the partition {wanted}")
        error = self._outcomes[wanted]
        if error is not None:
            raise error

    def partitions(self) -> set[TopicPartition]:
        """The partitions for which something was attempted, whatever came of it."""
        return set(self._outcomes)


class Described(Generic[K, V]):
    """`found` has what was described, `errors` the other keys."""

    def __init__(self, found: Mapping[K, V], errors: Mapping[K, AdminError]) -> None:
        self.found = dict(found)
        self.errors = dict(errors)

    def all(self) -> dict[K, V]:
        """Everything; raises the first error when there is one."""
        for error in self.errors.values():
            raise error
        return self.found

    def __getitem__(self, key: K) -> V:
        """What was described for the key; raises its error, or KeyError when it was not requested."""
        if key in self.errors:
            raise self.errors[key]
        return self.found[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(found={self.found!r}, errors={self.errors!r})"
