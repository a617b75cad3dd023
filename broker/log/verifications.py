"""Verifications of transactions in one log (KIP-890).

Before it appends the first records of a transaction, a leader checks with the coordinator that the partition is in the transaction. The
verification begins before the leader sends its request, and is void once a marker or records of the producer are in the log. So an old
response cannot let records into the log that no marker would ever end. After the first records the open transaction itself says that the
coordinator knows the partition. If several batches wait for verification, the first one in the log is that with the lowest sequence number.
"""

from __future__ import annotations

from klamm.protocol.errors import ApiError, ErrorCode


class Verification:
    """That of one producer. Its identity is what counts."""

    __slots__ = ("begun_ms", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begun_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms


class Verifications:
    """The verifications of one log, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Verification:
        """The producer's verification, which several requests share. `sequence` is that of the first record, -1 for coordinators."""
        present = self._by_producer.get(producer_id)
        if present is None:
            present = self._by_producer[producer_id] = Verification(epoch, sequence, now_ms)
        elif epoch > present.epoch:
            present.epoch, present.lowest_sequence = epoch, sequence
        elif epoch == present.epoch and sequence < present.lowest_sequence:
            present.lowest_sequence = sequence
        return present

    def check(self, producer_id: int, verification: Verification | None) -> None:
        """Check that this verification is not void, just before records are appended. Raises ApiError."""
        present = self._by_producer.get(producer_id)
        if present is None or present is not verification:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")

    def check_sequence(self, producer_id: int, sequence: int) -> None:
        """Check that no batch with a lower sequence number waits for verification. Raises ApiError."""
        present = self._by_producer.get(producer_id)
        if present is not None and sequence > present.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {sequence} (incoming seq. number), {present.lowest_sequence} "
                "(earliest seen sequence)",
            )

    def end(self, producer_id: int) -> None:
        """Records of a transaction of this producer, or a marker, are in the log."""
        self._by_producer.pop(producer_id, None)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget those that began `expiration_ms` ago."""
        self._by_producer = {
            producer_id: each for producer_id, each in self._by_producer.items() if now_ms - each.begun_ms < expiration_ms
        }
