"""The memory report: counts, bytes, and what is live at the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.tapes import tape

import tapegrad as tg
from tapegrad import pipeline
from tapegrad.ir.report import MemoryReport, size

KB = 1000  # an f8[125]


def test_inputs_captured_arrays_and_intermediates_are_counted():
    c = np.ones(125)
    _, made = tg.trace(lambda x, y: np.exp(x * c) + y, np.ones(125), 2.0)
    assert made.memory_report() == MemoryReport(
        parameter_count=2,
        parameter_bytes=KB + 8,
        constant_count=1,
        constant_bytes=KB,
        intermediate_count=3,
        intermediate_bytes=3 * KB,
        peak_live_bytes=2 * KB,
        saved_for_backward_bytes=0,
        scratch_bytes=0,
    )


def test_a_chain_needs_two_arrays_at_a_time():
    chain = "\n".join(f"%{k + 1} = exp(%{k}) : f8[125]" for k in range(1, 10))
    report = tape("f8[125]", f"{chain}\nout %10").memory_report()
    assert report.intermediate_bytes == 9 * KB
    assert report.peak_live_bytes == 2 * KB


def test_what_is_needed_later_stays_alive():
    report = tape(
        "f8[125]",
        """
        %2 = exp(%1) : f8[125]
        %3 = sin(%2) : f8[125]
        %4 = cos(%3) : f8[125]
        %5 = mul(%4, %2) : f8[125]
        out %5
        """,
    ).memory_report()
    assert report.peak_live_bytes == 3 * KB


def test_outputs_stay_alive():
    report = tape(
        "f8[125]",
        """
        %2 = exp(%1) : f8[125]
        %3 = sin(%2) : f8[125]
        %4 = cos(%3) : f8[125]
        out %2, %4
        """,
    ).memory_report()
    assert report.peak_live_bytes == 3 * KB


def test_views_take_no_memory_and_keep_what_they_show_alive():
    report = tape(
        "f8[125]",
        """
        %2 = exp(%1) : f8[125]
        %3 = reshape(%2, shape=(5, 25)) : f8[5,25]
        %4 = transpose(%3, axes=(1, 0)) : f8[25,5]
        %5 = sin(%1) : f8[125]
        %6 = cos(%5) : f8[125]
        out %4, %6
        """,
    ).memory_report()
    assert report.intermediate_count == 3
    assert report.peak_live_bytes == 3 * KB


def test_views_of_inputs_and_of_numbers_take_no_memory():
    report = tape(
        "f8[125]",
        """
        %2 = reshape(%1, shape=(5, 25)) : f8[5,25]
        %3 = broadcast_to(0.0, shape=(125, 125)) : f8[125,125]
        out %2, %3
        """,
    ).memory_report()
    assert report.intermediate_count == report.intermediate_bytes == report.peak_live_bytes == 0


def test_saved_is_what_the_backward_half_reads_of_the_forward_half():
    df = tg.grad(lambda x: np.sum(np.tanh(np.exp(x))), compile="never")
    df(np.ones(125))
    report = df.tapes[0].memory_report()
    assert report.saved_for_backward_bytes == KB  # exp(x), of which tanh's slope is computed


def test_a_value_saved_through_a_view_counts_once():
    made = tape(
        "f8[125]",
        """
        %2 = exp(%1) : f8[125]
        %3 = reshape(%2, shape=(5, 25)) : f8[5,25]
        %4 = sum(%3, axes=(0,)) : f8[25]
        %5 = sum(%2, axes=(0,)) : f8[]
        out %4, %5
        """,
    )
    backward = tuple(replace(call, reason="cotangent via exp") for call in made.calls[2:])
    report = replace(made, calls=(*made.calls[:2], *backward)).memory_report()
    assert report.saved_for_backward_bytes == KB


def test_it_prints_on_one_line():
    report = MemoryReport(2, 101_770 * 8, 1, 800, 12, 3_500_000_000, 1_234_567, 0)
    assert str(report) == (
        "2 parameters 814.2 kB, 1 constant 800 B, 12 intermediates 3.5 GB; "
        "1.2 MB live at the peak, 0 B saved for backward"
    )


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (999_960, "1.0 MB"), (2 * 10**12, "2.0 TB")],
)
def test_sizes_are_for_reading(nbytes, text):
    assert size(nbytes) == text


def test_scratch_is_what_compiled_code_stores():
    """Two products of matrices, which are written whole, and a chain in registers after each."""
    w = np.ones((125, 125))
    _, made = tg.trace(lambda x: np.sum((np.tanh(x @ w) @ w) ** 2), np.ones((125, 125)))
    report = made.memory_report()
    assert report.intermediate_bytes > 3 * 125 * KB
    assert report.scratch_bytes == 2 * 125 * KB
    assert str(report).endswith("250.0 kB of scratch when compiled")


def test_no_source_is_written_for_it(monkeypatch):
    _, made = tg.trace(lambda x: np.linalg.norm(x @ x), np.ones((25, 25)))
    program = pipeline.schedule(pipeline.optimized(made))
    slots = sum(slot.size * slot.dtype.itemsize for slot in program.slots)
    monkeypatch.setattr("tapegrad.backends.source.emit.emit", None)
    assert made.memory_report().scratch_bytes == slots == 5 * KB


def test_windows_of_loops_are_views_too():
    """Their steps are operands, and nothing that they show."""

    def decayed(x, rate):
        h = 0.0 * x[0]
        for t in range(len(x)):
            h = rate * h + np.tanh(x[t])
        return h

    report = tg.trace(decayed, np.ones(200), 0.9)[1].memory_report()
    assert report.intermediate_bytes == 4 * 8  # 0, the loop's result, and two numbers in a round
