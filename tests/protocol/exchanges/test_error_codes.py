"""Error codes are counted wherever the definition of a response has one, and the same in messages and in objects of JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from klamm.pipeline.decode.json_codec import decoder
from klamm.protocol import messages
from klamm.protocol.apis import APIS
from klamm.protocol.exchanges.error_codes import error_counts, error_name, first_error, is_error_code, path_counter
from klamm.protocol.schema import Struct


class Maker:
    """Messages whose every array has two rows, and whose every error code has a value of its own."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.codes: list[int] = []

    def made(self, kind: Any, struct: Struct) -> Any:
        values: dict[str, Any] = {}
        for field in struct.fields:
            if self.version not in field.versions:
                continue
            if is_error_code(field):
                self.codes.append(len(self.codes) % 50)
                values[field.attribute] = self.codes[-1]
            elif field.struct is not None:
                inner = kind._type.rows[field.struct.name]
                rows = [self.made(inner, field.struct) for _ in range(2 if field.is_array else 1)]
                values[field.attribute] = rows if field.is_array else rows[0]
            elif field.type == "records" and self.version not in field.nullable:
                values[field.attribute] = b""
        return kind._constructor(**values)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_code_of_every_version_is_counted_in_messages_and_in_json(api: Any) -> None:
    name = f"{api.name}Response"
    kind = messages.message_type(name)
    for version in range(api.min_version, api.last_version + 1):
        maker = Maker(version)
        message = maker.made(kind.top, kind.schema.root)
        assert error_counts(message, version) == Counter(maker.codes)
        assert bool(first_error(message)) == any(maker.codes)
        count = path_counter(name, version)
        body, _ = decoder(name, version)(messages.encode(message, version), 0)
        paths = {} if count is None else count(body)
        found: Counter[int] = Counter()
        for (_, code), times in paths.items():
            found[code] += times
        assert found == Counter(code for code in maker.codes if code)


def test_the_first_error_is_that_of_the_outer_structure() -> None:
    kind = messages.FetchResponse
    row = kind.PartitionData(partition_index=0, error_code=6, records=None)
    topic = kind.FetchableTopicResponse(topic="t", partitions=[row])
    assert first_error(kind(responses=[topic])) == 6 and first_error(kind(responses=[topic], error_code=71)) == 71
    assert [error_name(code) for code in (0, 6, 1234)] == ["NONE", "NOT_LEADER_OR_FOLLOWER", "1234"]


def test_an_object_whose_end_is_missing_has_the_codes_that_are_there() -> None:
    count = path_counter("FetchResponse", 12)
    assert count is not None
    assert count({}) == {} and count({"errorCode": 3, "responses": [{}, {"partitions": None}]}) == {("errorCode", 3): 1}
