"""A gate as a JUnit test report, which CI systems show next to their tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

_NO_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 does not allow."""
_ELEMENTS: Mapping[str, str] = {"fail": "failure", "undecided": "error"}
"""Verdict → the element that marks it. An undecided gate has not passed, and has not failed either."""


def junit_xml(document: Mapping[str, Any]) -> str:
    """The report of one gate, from its document."""
    verdict = document["verdict"]
    load = ", ".join(f"{name} {amount:g}" for name, amount in document["break_even"]["load"].items())
    counts = {
        "tests": "1",
        "failures": str(int(verdict == "fail")),
        "errors": str(int(verdict == "undecided")),
        "skipped": "0",
    }
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "decodesim gate", **counts})
    name = _text(f"acceptance of {document['arm']} at {load}")
    case = ElementTree.SubElement(suite, "testcase", {"classname": "decodesim.gate", "name": name})
    if verdict in _ELEMENTS:
        attributes = {"message": _text(document["reason"]), "type": verdict}
        ElementTree.SubElement(case, _ELEMENTS[verdict], attributes)
    shown = {key: document[key] for key in ("measured", "break_even", "samples_needed")}
    details = json.dumps(shown, indent=2)
    ElementTree.SubElement(case, "system-out").text = details
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _text(value: str) -> str:
    return _NO_XML.sub("\ufffd", value)
