"""Writes what `klamm pipeline check --json` says as JUnit's XML, and prints it as Markdown: `verdicts.py VERDICTS.json JUNIT.xml`.

It runs where the job runs, so it imports the standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

SHOWN = 10
"""Violations that the summary of a job shows."""


def as_junit(verdicts: dict[str, Any]) -> str:
    """A test case for each rule that was exercised in a run; it fails if the rule is broken."""
    suite = Xml.Element("testsuite", name="klamm")
    for stat in verdicts["stats"]:
        if stat["checked"] == 0:
            continue
        case = Xml.SubElement(suite, "testcase", classname=f"klamm.{stat['run_id']}", name=stat["rule"])
        broken = [each for each in verdicts["violations"] if (each["run_id"], each["rule"]) == (stat["run_id"], stat["rule"])]
        if broken:
            failure = Xml.SubElement(case, "failure", message=f"{stat['violated']} of {stat['checked']}: {broken[0]['detail']}")
            failure.text = "\n".join(line for each in broken for line in (each["detail"], *each["lines"]))
    for name, of in (("tests", "testcase"), ("failures", "testcase/failure")):
        suite.set(name, str(len(suite.findall(of))))
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True)


def as_markdown(verdicts: dict[str, Any]) -> str:
    """What the page of the job shows."""
    violations = verdicts["violations"]
    exercised = len({stat["rule"] for stat in verdicts["stats"] if stat["checked"]})
    lines = [f"### Klamm: {len(violations) or 'no'} violations, {exercised} rules exercised", ""]
    if violations:
        lines += ["| rule | severity | broker | what |", "|---|---|---|---|"]
    for each in violations[:SHOWN]:
        detail = each["detail"].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {each['rule']} | {each['severity']} | {each['node_id']} | {detail} |")
    if len(violations) > SHOWN:
        lines.append(f"\n… and {len(violations) - SHOWN} more")
    if not verdicts["complete"]:
        lines.append("\nRows of the journal are missing, so not all was judged.")
    return "\n".join(lines)


def main(verdicts: str, junit: str) -> None:
    """Write the one and print the other."""
    read = json.loads(Path(verdicts).read_text(encoding="utf-8"))
    Path(junit).write_text(as_junit(read), encoding="utf-8")
    print(as_markdown(read))


if __name__ == "__main__":
    main(*sys.argv[1:])
