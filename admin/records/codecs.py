"""Gives kafka-python the codecs of Klamm, so that snappy, lz4 and zstd need no packages that Klamm does not have.

kafka-python looks its codecs up as functions of its own modules; they are replaced there, for the whole process. Only the producer and the
consumer of this package call this.
"""

from __future__ import annotations

from functools import partial

import kafka.codec
import kafka.errors
from kafka.producer.kafka import KafkaProducer
from kafka.record import default_records, legacy_records

from klamm.protocol.records.batch import Codec
from klamm.protocol.records.compression import BadCompression, compress, decompress

_NAMES = {"snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


def use_own_codecs() -> None:
    """Replace the codecs. A second call has no effect."""
    for name, codec in _NAMES.items():
        setattr(kafka.codec, f"has_{name}", _is_there)
        KafkaProducer._COMPRESSORS[name] = (_is_there, KafkaProducer._COMPRESSORS[name][1])
        for module in (default_records, legacy_records):
            setattr(module, f"{name}_encode", partial(_encode, codec))
            setattr(module, f"{name}_decode", partial(_decode, codec, 2))
    legacy_records.lz4_decode_old_kafka = partial(_decode, Codec.LZ4, 0)


def _is_there() -> bool:
    return True


def _encode(codec: Codec, data: bytes) -> bytes:
    return compress(codec, bytes(data))


def _decode(codec: Codec, magic: int, data: bytes) -> bytes:
    try:
        return decompress(codec, data, magic=magic)
    except BadCompression as error:
        raise kafka.errors.CorruptRecordError(str(error)) from error

