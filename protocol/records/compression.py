"""Compressed records: the four codecs in the framing that Kafka's clients write, with an upper bound of what they decompress to.

`bound` reads the sizes that a compressed block declares without decompressing it, so a small block that would become huge is refused before
memory is taken for it. `decompress` never returns more than its limit. gzip is zlib's; the other algorithms are cramjam's, their framing is
here: snappy has the blocks of snappy-java (or none, as librdkafka writes it), lz4 is the frame format with independent blocks, which is the
only one that Kafka reads. A checksum of lz4 blocks is not looked at: the CRC of the batch covers them.

Source: `org.apache.kafka.common.compress` of Apache Kafka 3.9.1; specification of the wire protocol, section 6.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct, unpack_from
from struct import error as struct_error

import cramjam

from klamm.protocol.records.batch import Codec

LIMIT = 100 * 1024 * 1024
"""Bytes to which a batch may decompress: as many as one request may have (`socket.request.max.bytes`)."""

LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
DEFAULT_LEVELS = {Codec.GZIP: 6, Codec.LZ4: 9, Codec.ZSTD: 3}
"""What `compression.<codec>.level` is by default; gzip's -1 is zlib's 6."""

GZIP_RATIO = 1032
"""Deflate expands one byte to at most this number."""

GZIP_UNDECLARED = 1024 * 1024
"""Up to this many bytes are taken from gzip, whatever its trailer says."""

LZ4_RATIO = 256
"""A block of lz4 makes at most 255 bytes of one."""

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Deflate, no flags, time or level, an unknown operating system: as Java 16 and later write it."""
_GZIP_TRAILER = Struct("<II")

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_SNAPPY_BLOCK = 32 * 1024

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks, no sizes or checksums; blocks of 64 KiB at most; the checksum of these two bytes."""
_LZ4_BLOCK = 64 * 1024
_LZ4_PLAIN = 0x80000000
_LZ4_FAST_LEVEL = 9

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ZSTD_BLOCK = 128 * 1024
_ZSTD_SIZE_FIELDS = (0, 2, 4, 8)

_INT = Struct(">I")
_LITTLE = Struct("<I")


class BadCompression(Exception):
    """The bytes are not valid for this codec. Apache Kafka responds with UNKNOWN_SERVER_ERROR."""


class TooLarge(Exception):
    """The records would decompress to more bytes than the limit."""


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Compress the records of a batch as one block. `level` None is the default of the codec."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _gzip(data, -1 if level is None else level)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            return _lz4(data, level)
        case Codec.ZSTD:
            return _zstd(data, DEFAULT_LEVELS[Codec.ZSTD] if level is None else level)


def decompress(codec: Codec, data: bytes | memoryview, limit: int = LIMIT, *, magic: int = 2) -> bytes:
    """Decompress the records of a batch. `magic` is that of the batch, because lz4 frames in magic 0 have another checksum.

    Raises BadCompression; TooLarge for more than `limit` bytes.
    """
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return _gunzip(data, limit)
            case Codec.SNAPPY:
                return _unsnappy(bytes(data), limit)
            case Codec.LZ4:
                return _unlz4(bytes(data), limit, magic)
            case Codec.ZSTD:
                return _unzstd(bytes(data), limit)
    except (zlib.error, cramjam.DecompressionError, IndexError, ValueError, struct_error) as error:
        raise BadCompression(f"{codec.name.lower()}: {error}") from error


def bound(codec: Codec, data: bytes | memoryview) -> int:
    """The maximum number of bytes that `decompress` can return, from sizes in the data; 0 for bytes that are not valid for the codec."""
    data = bytes(data)
    try:
        match codec:
            case Codec.NONE:
                return len(data)
            case Codec.GZIP:
                return _gzip_bound(data)
            case Codec.SNAPPY:
                return sum(size for _, _, size in _snappy_blocks(data))
            case Codec.LZ4:
                return _lz4_bound(data)
            case Codec.ZSTD:
                return _zstd_bound(data)
    except (BadCompression, cramjam.DecompressionError, IndexError, ValueError, struct_error):
        return 0


def _gzip(data: bytes, level: int) -> bytes:
    squeezer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join((_GZIP_HEADER, squeezer.compress(data), squeezer.flush(), _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)))


def _zstd(data: bytes, level: int) -> bytes:
    """Apache Kafka flushes before it closes the stream, which ends with an empty block therefore."""
    squeezer = cramjam.zstd.Compressor(level)
    squeezer.compress(data)
    return bytes(squeezer.flush()) + bytes(squeezer.finish())


def _gzip_bound(data: bytes | memoryview) -> int:
    """The size in the trailer, limited by what deflate can produce, but at least GZIP_UNDECLARED."""
    declared = int.from_bytes(data[-4:], "little")
    most = len(data) * GZIP_RATIO
    return max(min(declared, most), min(GZIP_UNDECLARED, most))


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress one or more members. Bytes after the last one are ignored, as by Java's GZIPInputStream.

    More bytes than `_gzip_bound` are an error, like a wrong trailer; several members that are larger together are refused too.
    """
    parts = []
    most = _gzip_bound(data)
    left = min(limit, most)
    while True:
        member = zlib.decompressobj(31)
        part = member.decompress(data, left + 1)
        if len(part) > left and most <= limit:
            raise BadCompression("gzip: more bytes than the trailer says")
        if len(part) > left:
            raise TooLarge(f"more than {limit} bytes")
        if not member.eof:
            raise BadCompression("gzip: the data ends too early")
        parts.append(part)
        left -= len(part)
        data = member.unused_data
        if data[:2] != b"\x1f\x8b":
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: bytes) -> bytes:
    out = [_SNAPPY_HEADER]
    for position in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[position : position + _SNAPPY_BLOCK]))
        out += (_INT.pack(len(block)), block)
    return b"".join(out)


def _snappy_blocks(data: bytes) -> list[tuple[int, int, int]]:
    """(start, end, size when decompressed) of each raw block."""
    if not data.startswith(_SNAPPY_MAGIC):
        return [(0, len(data), cramjam.snappy.decompress_raw_len(data))]
    blocks = []
    position = len(_SNAPPY_HEADER)
    while position < len(data):
        if data.startswith(_SNAPPY_MAGIC, position):
            position += len(_SNAPPY_HEADER)  # streams one after the other
            continue
        if len(data) - position < 4:
            break
        (length,) = unpack_from(">i", data, position)
        position += 4
        if length <= 0 or position + length > len(data):
            raise BadCompression("snappy: a block has no bytes, or more than there are")
        blocks.append((position, position + length, cramjam.snappy.decompress_raw_len(data[position : position + length])))
        position += length
    return blocks


def _unsnappy(data: bytes, limit: int) -> bytes:
    blocks = _snappy_blocks(data)
    if sum(size for _, _, size in blocks) > limit:
        raise TooLarge(f"more than {limit} bytes")
    return b"".join([bytes(cramjam.snappy.decompress_raw(data[start:end])) for start, end, _ in blocks])


def _lz4(data: bytes, level: int | None) -> bytes:
    out = [_LZ4_HEADER]
    for position in range(0, len(data), _LZ4_BLOCK):
        plain = data[position : position + _LZ4_BLOCK]
        if level is None or level == _LZ4_FAST_LEVEL:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = bytes(cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False))
        if len(block) < len(plain):
            out += (_LITTLE.pack(len(block)), block)
        else:
            out += (_LITTLE.pack(len(plain) | _LZ4_PLAIN), plain)
    out.append(bytes(4))
    return b"".join(out)


def _lz4_header(data: bytes, magic: int) -> tuple[int, int]:
    """(position of the first block, maximum size of a block)."""
    if len(data) < 7:
        raise BadCompression("lz4: the frame ends too early")
    if data[:4] != _LZ4_MAGIC:
        raise BadCompression("lz4: not a frame")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x02 or descriptor & 0x8F or descriptor >> 4 < 4:
        raise BadCompression("lz4: flags that no frame has")
    if not flags & 0x20:
        raise BadCompression("lz4: dependent blocks are not supported")
    end = 14 if flags & 0x08 else 6
    if len(data) <= end:
        raise BadCompression("lz4: the frame ends too early")
    if magic > 0 and data[end] != xxh32_of_few(data[4:end]) >> 8 & 0xFF:
        raise BadCompression("lz4: the checksum of the frame descriptor is wrong")
    return end + 1, 1 << (2 * (descriptor >> 4) + 8)


def _lz4_blocks(data: bytes, position: int, largest: int) -> Iterator[tuple[bool, int, int]]:
    """(is compressed, start, end) of each block of the frame whose blocks begin at `position`."""
    checksum = 4 if data[4] & 0x10 else 0
    while True:
        if len(data) - position < 4:
            raise BadCompression("lz4: the frame ends too early")
        (length,) = _LITTLE.unpack_from(data, position)
        is_compressed = length < _LZ4_PLAIN
        length &= ~_LZ4_PLAIN
        if length == 0:
            return
        start, position = position + 4, position + 4 + length + checksum
        if length > largest or position > len(data):
            raise BadCompression("lz4: a block is too long")
        yield is_compressed, start, start + length


def _lz4_bound(data: bytes) -> int:
    position, largest = _lz4_header(data, 0)  # its checksum does not matter here
    return sum(min(largest, (end - start) * LZ4_RATIO) for _, start, end in _lz4_blocks(data, position, largest))


def _unlz4(data: bytes, limit: int, magic: int) -> bytes:
    """Decompress one frame. Bytes after it are ignored."""
    position, largest = _lz4_header(data, magic)
    parts: list[bytes] = []
    left = limit
    for is_compressed, start, end in _lz4_blocks(data, position, largest):
        part = data[start:end]
        if is_compressed:
            out = bytearray(min(largest, len(part) * LZ4_RATIO))
            # without the length cramjam guesses from the first four bytes whether a size precedes the block
            part = bytes(memoryview(out)[: cramjam.lz4.decompress_block_into(part, out, len(out))])
        left -= len(part)
        if left < 0:
            raise TooLarge(f"more than {limit} bytes")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zstd_bound(data: bytes) -> int:
    """The sum of the declared sizes of all frames; for a frame without one, the maximum of its blocks."""
    total = position = 0
    while position < len(data):
        (magic,) = _LITTLE.unpack_from(data, position) if len(data) - position >= 4 else (0,)
        if magic in _ZSTD_SKIPPABLE:
            position += 8 + _LITTLE.unpack_from(data, position + 4)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise BadCompression("zstd: not a frame")
        size, position = _zstd_frame(data, position + 4)
        total += size
    return total


def _zstd_frame(data: bytes, position: int) -> tuple[int, int]:
    """(bound, end) of one frame, whose descriptor is at `position`."""
    descriptor = data[position]
    is_single = descriptor & 0x20
    size_field = 1 if is_single and not descriptor >> 6 else _ZSTD_SIZE_FIELDS[descriptor >> 6]
    position += 1 + (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3]
    declared = int.from_bytes(data[position : position + size_field], "little") + (256 if size_field == 2 else 0)
    position += size_field
    most = 0
    while True:
        block = int.from_bytes(data[position : position + 3], "little")
        if position + 3 > len(data):
            raise BadCompression("zstd: the frame ends too early")
        kind, length = block >> 1 & 3, block >> 3
        most += _ZSTD_BLOCK if kind == 2 else length
        position += 3 + (1 if kind == 1 else length)
        if block & 1:
            break
    position += 4 if descriptor & 4 else 0
    if position > len(data):
        raise BadCompression("zstd: the frame ends too early")
    return (declared if size_field and declared <= most else most), position


def _unzstd(data: bytes, limit: int) -> bytes:
    most = _zstd_bound(data)
    if most <= limit:
        return bytes(cramjam.zstd.decompress(data))
    out = bytearray(limit)
    try:
        return bytes(out[: cramjam.zstd.decompress_into(data, out)])
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise TooLarge(f"more than {limit} bytes") from None
        raise


def xxh32_of_few(data: bytes) -> int:
    """The xxHash32 of less than 16 bytes, with seed 0, as lz4 uses it for its frame descriptor."""
    total = 0x165667B1 + len(data)
    position = 0
    while position + 4 <= len(data):
        total = (total + _LITTLE.unpack_from(data, position)[0] * 0xC2B2AE3D) & 0xFFFFFFFF
        total = ((total << 17 | total >> 15) & 0xFFFFFFFF) * 0x27D4EB2F & 0xFFFFFFFF
        position += 4
    for byte in data[position:]:
        total = (total + byte * 0x165667B1) & 0xFFFFFFFF
        total = ((total << 11 | total >> 21) & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF
    total = (total ^ total >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    total = (total ^ total >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return total ^ total >> 16
