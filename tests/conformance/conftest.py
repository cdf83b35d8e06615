"""Prints the table of groups at the end of a conformance run, and writes the report that COTENANT_VECTORS_REPORT names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conformance import results


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not results.COUNTS:
        return
    terminalreporter.section("conformance")
    for line in results.table():
        terminalreporter.write_line(line)
    report = os.environ.get("COTENANT_VECTORS_REPORT")
    if report:
        Path(report).write_text(json.dumps(dict(sorted(results.COUNTS.items())), indent=2) + "\n")
