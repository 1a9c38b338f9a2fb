"""The closing note of `make fuzz`: how many programs ran, and what was compared."""

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
        awaited = {word: count for word, count in reached.items() if word.startswith("awaited: ")}
        found = [(word, count) for word, count in reached.most_common() if word not in awaited]
        parts = [f"{word} {100 * count / programs:.0f} %" for word, count in found]
        terminalreporter.section("random programs")
        terminalreporter.write_line(f"{programs:,} programs ran. Compared: {', '.join(parts)}.")
        for word, count in awaited.items():
            terminalreporter.write_line(f"{count:,} programs fail as is known; {word}")
