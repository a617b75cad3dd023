"""The quick look at a LeaderAndIsr answer says the same as the decoder, or leaves it to the decoder."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klamm.protocol import messages
from klamm.protocol.shortcuts.clean_responses import is_clean_leader_and_isr

R = messages.LeaderAndIsrResponse


def answer(topics: list[list[int]], error: int = 0) -> Any:
    return R(
        error_code=error,
        topics=[
            R.LeaderAndIsrTopicError(
                topic_id=bytes([n % 256]) * 16,
                partition_errors=[R.LeaderAndIsrPartitionError(partition_index=i, error_code=e) for i, e in enumerate(errors)],
            )
            for n, errors in enumerate(topics)
        ],
    )


codes = st.lists(st.sampled_from([0, 0, 0, 0, 11, 56, -1]), max_size=300)


@settings(deadline=None)
@given(st.lists(codes, max_size=4), st.sampled_from([0, 0, 11]), st.sampled_from([5, 6, 7]))
def test_as_the_decoder_says(topics: list[list[int]], error: int, version: int) -> None:
    body = messages.encode(answer(topics, error), version)
    clean = error == 0 and not any(e for errors in topics for e in errors)
    assert is_clean_leader_and_isr(version, b"head" + body, 4) is clean


@pytest.mark.parametrize("rows", [0, 1, 126, 127, 128, 16382, 16383, 16384])
def test_counts_of_one_to_three_bytes(rows: int) -> None:
    body = messages.encode(answer([[0] * rows, [0]]), 7)
    assert is_clean_leader_and_isr(7, body, 0)


def test_anything_else_is_for_the_decoder() -> None:
    body = messages.encode(answer([[0, 0], [0]]), 7)
    assert is_clean_leader_and_isr(7, body, 0)
    for cut in range(len(body)):
        assert not is_clean_leader_and_isr(7, body[:cut], 0), f"the first {cut} bytes"
    assert not is_clean_leader_and_isr(7, body + b"\x00", 0), "bytes behind it"
    assert not is_clean_leader_and_isr(4, body, 0), "a version with rows of another kind"
    tagged = body[:-1] + b"\x01\x05\x00"
    assert messages.decode("LeaderAndIsrResponse", 7, tagged)[0].error_code == 0
    assert not is_clean_leader_and_isr(7, tagged, 0), "with a tagged field"


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 8))
def test_any_bytes(data: bytes, version: int) -> None:
    if is_clean_leader_and_isr(version, data, 0):
        decoded, end = messages.decode("LeaderAndIsrResponse", version, data)
        assert end == len(data) and decoded.error_code == 0
        assert all(row.error_code == 0 for t in decoded.topics for row in t.partition_errors)
