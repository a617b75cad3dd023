"""Which requests somebody asks for. Names and numbers that do not exist are refused here, for Python, HTTP and the command line alike: a
filter that can match nothing would say that nothing happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from klamm.control.bodies import check_brokers, error_named
from klamm.control.history import ANY_ERROR, api_named
from klamm.control.refusal import Refused
from klamm.protocol.errors import ErrorCode

__tracebackhide__ = True  # pytest leaves out the lines of this module


def checked(wanted: Mapping[str, Any], brokers: Iterable[int]) -> dict[str, Any]:
    """A filter as `History.newest` takes it, from the ids of all brokers. Raises Refused, with a suggestion where there is one."""
    found = dict(wanted)
    if found.get("api") is not None:
        try:
            api_named(str(found["api"]))
        except ValueError as problem:
            raise Refused(str(problem)) from None
    check_brokers([*brokers], found.get("broker"))
    error = found.get("error")
    if error is not None and error != ANY_ERROR:
        code = error_named(error)
        if code == ErrorCode.NONE:
            raise Refused(f"NONE is not an error; {ANY_ERROR!r} is any error")
        found["error"] = code.name
    return found
