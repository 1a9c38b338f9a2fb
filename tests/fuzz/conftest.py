"""The summary of `make fuzz`: how many programs ran, and what was compared."""

from __future__ import annotations

from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    programs, reached = 0, Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            given = report.user_properties if getattr(report, "when", "") == "call" else ()
            for name, value in given:
                if name == "programs":
                    programs += value
                elif name == "reached":
                    reached.update(value)
    if programs:
        parts = [f"{word} {100 * count / programs:.0f} %" for word, count in reached.most_common()]
        terminalreporter.section("random programs")
        terminalreporter.write_line(f"{programs:,} programs ran. Compared: {', '.join(parts)}.")
