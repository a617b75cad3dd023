"""The verdicts of a check as JUnit's XML: a case for each rule and run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from klamm.pipeline.rules.check import Checked


def as_junit(checked: Checked, warnings_fail: bool) -> str:
    """A violated rule of severity `error` is a failure, one of severity `warn` only with `warnings_fail`; a rule that had nothing to look
    at is skipped.
    """
    suite = ElementTree.Element("testsuite", name="klamm")
    verdicts = checked.by_rule()
    for stat in checked.judgement.stats:
        rule = checked.rules[stat.rule]
        case = ElementTree.SubElement(suite, "testcase", classname=stat.run_id, name=f"{stat.rule} {rule.statement}")
        if stat.checked == 0:
            ElementTree.SubElement(case, "skipped", message=stat.lacks or "not exercised")
        elif stat.violated:
            found = verdicts.get((stat.run_id, stat.rule), [])
            lines = [line for verdict in found for line in (verdict.detail, *checked.evidence(verdict))]
            kind = "failure" if warnings_fail or rule.severity == "error" else "system-out"
            ElementTree.SubElement(case, kind).text = "\n".join(map(_printable, lines))
    failures = len(suite.findall("testcase/failure"))
    for name, count in (("tests", len(suite)), ("failures", failures), ("skipped", len(suite.findall("testcase/skipped")))):
        suite.set(name, str(count))
    return ElementTree.tostring(suite, encoding="utf-8").decode() + "\n"


def _printable(line: str) -> str:
    """XML has no control characters."""
    return "".join(each if each.isprintable() else " " for each in line)
