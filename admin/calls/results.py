"""Results of the admin client.

A change of several partitions, brokers or configs returns a `Result` with an outcome for each: None or an error. These errors are raised
only by methods such as `all`. A description returns a `Described`, with the descriptions and the errors of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from klamm.admin.calls.errors import AdminError, response_error
from klamm.protocol.errors import ErrorCode
from klamm.protocol.nouns import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class Result(Generic[K]):
    """The outcome of each key of a change."""

    def __init__(self, outcomes: Mapping[K, AdminError | None]) -> None:
        self._outcomes = dict(outcomes)

    def values(self) -> dict[K, AdminError | None]:
        """Key → its error, or None if it succeeded; in the order of the request."""
        return dict(self._outcomes)

    def errors(self) -> dict[K, AdminError]:
        """The keys that failed, with their errors."""
        return {key: error for key, error in self._outcomes.items() if error is not None}

    def all(self) -> None:
        """Raise the first error. Returns if every key succeeded, or if there are no keys."""
        for error in self._outcomes.values():
            if error is not None:
                raise error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._outcomes!r})"


class PartitionResult(Result[TopicPartition]):
    """The outcome of each partition."""

    def partition_result(self, partition: tuple[str, int]) -> None:
        """Raise the error of a partition. Returns if it succeeded.

        Raises UnknownTopicOrPartitionError (code UNKNOWN_TOPIC_OR_PARTITION) if nothing was attempted for the partition. Then it was not
        requested, or in an election of all partitions it already had its preferred leader (R183-26).
        """
        wanted = TopicPartition(*partition)
        if wanted not in self._outcomes:
            raise response_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing was attempted for the partition {wanted}")
        error = self._outcomes[wanted]
        if error is not None:
            raise error

    def partitions(self) -> set[TopicPartition]:
        """The partitions for which something was attempted, with or without success."""
        return set(self._outcomes)


class Described(Generic[K, V]):
    """Descriptions by key in `found`; errors of the other keys in `errors`."""

    def __init__(self, found: Mapping[K, V], errors: Mapping[K, AdminError]) -> None:
        self.found = dict(found)
        self.errors = dict(errors)

    @classmethod
    def of(cls, outcomes: Mapping[K, V | AdminError]) -> Described[K, V]:
        """The descriptions and the errors of a call, in its order."""
        descriptions = {key: outcome for key, outcome in outcomes.items() if not isinstance(outcome, AdminError)}
        return cls(descriptions, {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, AdminError)})

    def all(self) -> dict[K, V]:
        """All descriptions. Raises the first error, if there is one."""
        for error in self.errors.values():
            raise error
        return self.found

    def __getitem__(self, key: K) -> V:
        """The description of the key. Raises its error, or KeyError if it was not requested."""
        if key in self.errors:
            raise self.errors[key]
        return self.found[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(found={self.found!r}, errors={self.errors!r})"


class Listed(Generic[V]):
    """What the brokers of a cluster listed: by id in `found`. `errors` has the brokers, by id, that could not list everything."""

    def __init__(self, found: Mapping[str, V], errors: Mapping[int, AdminError]) -> None:
        self.found = dict(found)
        self.errors = dict(errors)

    def all(self) -> dict[str, V]:
        """Everything. Raises the first error of a broker, if there is one."""
        for error in self.errors.values():
            raise error
        return self.found

    def __repr__(self) -> str:
        return f"{type(self).__name__}(found={self.found!r}, errors={self.errors!r})"
