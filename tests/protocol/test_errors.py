from __future__ import annotations

from klamm.protocol.errors import ApiError, ErrorCode, received_code
from klamm.tests.protocol import golden

OF_KAFKA_4 = {
    128: ("INVALID_REGULAR_EXPRESSION", False, False), 129: ("REBOOTSTRAP_REQUIRED", False, False),
    136: ("CONTROLLER_ID_NOT_REGISTERED", False, False),
}


def test_codes_are_those_of_kafka() -> None:
    wanted = {row["code"]: (row["name"], row["retriable"], row["refreshes_metadata"]) for row in golden.table("errors.json")}
    assert (min(wanted), max(wanted), len(wanted)) == (-1, 127, 129)
    assert {code.value: (code.name, code.retriable, code.refreshes_metadata) for code in ErrorCode} == wanted | OF_KAFKA_4


def test_a_number_that_only_later_brokers_know_is_an_unknown_error() -> None:
    assert {code: received_code(code.value) for code in ErrorCode} == {code: code for code in ErrorCode}
    assert (received_code(999), received_code(-2)) == (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)


def test_an_api_error_says_code_and_text() -> None:
    assert str(ApiError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
    error = ApiError(ErrorCode.INVALID_CONFIG, "no such config")
    assert (error.code, error.message, str(error)) == (40, "no such config", "INVALID_CONFIG: no such config")
