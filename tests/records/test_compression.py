"""The four codecs: round trips, what other libraries write, bounds, and bytes that are none of it."""

from __future__ import annotations

import gzip
import zlib
from random import Random

import cramjam
import pytest

from klamm.protocol.records.batch import Codec
from klamm.protocol.records.compression import (
    LEVELS,
    BadCompression,
    TooLarge,
    bound,
    compress,
    decompress,
    xxh32_of_few,
)
from klamm.protocol.records.record import Record, encode_batch
from klamm.tests.records.comparison import outcome
from klamm.tests.records.judge import judging
from klamm.tests.records.random_batches import draw

CODECS = [codec for codec in Codec if codec]
TEXT = b"".join(b"user-%d likes %d;" % (number * 7 % 1000, number) for number in range(5000))
CONTENTS = [b"", b"a", TEXT[:500], TEXT, bytes(300_000), Random(1).randbytes(100_000)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", CONTENTS, ids=len)
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert bound(codec, packed) >= len(data)


@pytest.mark.parametrize(
    ("codec", "data", "packed"),
    [
        (Codec.GZIP, b"a" * 13, "1f8b08000000000000ff4b4c440200408927510d000000"),
        (Codec.GZIP, b"abc" * 100, "1f8b08000000000000ff4b4c4a4e1c45c4210084b8c4d02c010000"),
        (Codec.ZSTD, b"a" * 13, "28b52ffd0058440000106161010006c002010000"),
        (Codec.ZSTD, b"abc" * 100, "28b52ffd005854000018616263010026aa6e08010000"),
    ],
)
def test_bytes_are_those_that_apache_kafka_writes(codec: Codec, data: bytes, packed: str) -> None:
    """Sizes of segments are then the same. Recorded from `Compression` of Apache Kafka 3.9.1 on Java 17."""
    assert compress(codec, data).hex() == packed


@pytest.mark.parametrize("codec", CODECS)
def test_more_than_the_limit_is_refused_and_exactly_the_limit_is_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(TEXT) - 1)


SOME_LEVELS = [(codec, level) for codec, levels in LEVELS.items() for level in (levels[0], 1, 9, levels[-1])]


@pytest.mark.parametrize(("codec", "level"), SOME_LEVELS)
def test_every_level_of_the_configs_can_be_written(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_cut_bytes_are_an_error(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    # a stream of snappy-java may end after its header, or up to three bytes later
    for end in range(20 if codec is Codec.SNAPPY else 0, len(packed)):
        with pytest.raises(BadCompression):
            decompress(codec, packed[:end])


@pytest.mark.parametrize("codec", CODECS)
def test_changed_bytes_are_an_error_or_other_bytes_and_nothing_else(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000])
    for seed in range(1500):
        random = Random(seed)
        changed = bytearray(packed)
        for _ in range(random.choice((1, 1, 5))):
            changed[random.randrange(len(changed))] = random.randrange(256)
        survives(codec, bytes(changed))
        survives(codec, random.randbytes(random.randrange(60)))


def survives(codec: Codec, packed: bytes) -> None:
    assert bound(codec, packed) >= 0
    try:
        decompress(codec, packed, 10_000_000)
    except (BadCompression, TooLarge):
        pass


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_is_never_less_than_what_comes_out_of_changed_bytes(codec: Codec) -> None:
    packed = compress(codec, TEXT[:2000])
    for seed in range(1000):
        random = Random(seed)
        changed = bytearray(packed)
        changed[random.randrange(len(changed))] = random.randrange(256)
        try:
            made = decompress(codec, bytes(changed))
        except (BadCompression, TooLarge):
            continue
        assert bound(codec, bytes(changed)) >= len(made)


def test_snappy_without_blocks_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_several_members_of_gzip_and_bytes_behind_them_are_read_as_by_java() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two") + b"rest") == b"onetwo"


def test_several_frames_of_zstd_are_read() -> None:
    frames = bytes(cramjam.zstd.compress(b"one")) + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + bytes(cramjam.zstd.compress(b"two"))
    assert decompress(Codec.ZSTD, frames) == b"onetwo"


def lz4_frame(flags: int, descriptor: int, *, size: bytes = b"", block_checksum: bytes = b"", end: bytes = bytes(4)) -> bytes:
    block = bytes(cramjam.lz4.compress_block(TEXT[:1000], store_size=False))
    head = bytes((flags, descriptor)) + size
    checksum = bytes((xxh32_of_few(head) >> 8 & 0xFF,))
    return b"\x04\x22\x4d\x18" + head + checksum + len(block).to_bytes(4, "little") + block + block_checksum + end


def test_frames_of_lz4_with_sizes_and_checksums_are_read() -> None:
    frame = lz4_frame(0x60 | 0x1C, 0x70, size=(1000).to_bytes(8, "little"), block_checksum=b"1234", end=bytes(8))
    assert decompress(Codec.LZ4, frame) == TEXT[:1000]


def lz4_frame_of(block: bytes) -> bytes:
    return lz4_frame(0x60, 0x40)[:7] + len(block).to_bytes(4, "little") + block + bytes(4)


@pytest.mark.parametrize(("number", "error"), [(629866830, "UNKNOWN_SERVER_ERROR"), (592172957, "INVALID_TIMESTAMP")])
def test_a_block_of_lz4_whose_first_bytes_could_be_its_size_is_read(number: int, error: str) -> None:
    """Two batches whose block begins with bytes that read as a length. Apache Kafka reads their records, and finds fault with those."""
    assert outcome(draw(Random(number)))[1]["error"] == error


def test_every_first_literal_of_a_block_of_lz4_is_read() -> None:
    for first in range(256):
        literals = bytes((first, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
        assert decompress(Codec.LZ4, lz4_frame_of(b"\xc0" + literals)) == literals


@pytest.mark.parametrize(("flags", "descriptor"), [(0x40, 0x40), (0x20, 0x40), (0x62, 0x40), (0x60, 0x30), (0x60, 0xC0)])
def test_frames_of_lz4_that_kafka_does_not_read_are_an_error(flags: int, descriptor: int) -> None:
    with pytest.raises(BadCompression):
        decompress(Codec.LZ4, lz4_frame(flags, descriptor))


def test_the_checksum_of_the_descriptor_counts_from_magic_1_on() -> None:
    frame = bytearray(compress(Codec.LZ4, TEXT))
    frame[6] ^= 1
    with pytest.raises(BadCompression):
        decompress(Codec.LZ4, bytes(frame))
    assert decompress(Codec.LZ4, bytes(frame), magic=0) == TEXT


def test_a_frame_of_zstd_that_declares_too_much_is_refused() -> None:
    packed = compress(Codec.ZSTD, bytes(50_000_000))
    with pytest.raises(TooLarge):
        decompress(Codec.ZSTD, packed, 1_000_000)
    assert len(packed) < 10_000


def test_gzip_writes_what_zlib_reads() -> None:
    assert zlib.decompress(compress(Codec.GZIP, TEXT, 9), 31) == TEXT


@pytest.mark.slow
@pytest.mark.reference
def test_kafka_reads_every_codec_and_level() -> None:
    records = [Record(number, 5, b"k", TEXT[: number * 300]) for number in range(20)]
    levels = [(codec, level) for codec in CODECS for level in (None, *LEVELS.get(codec, range(0))[-17:])]
    with judging() as judge:
        for codec, level in levels:
            result = judge.read(encode_batch(records, codec=codec, level=level))
            values = [row[3] for row in result["batches"][0]["records"]]
            assert values == [TEXT[: number * 300].hex() for number in range(20)]
