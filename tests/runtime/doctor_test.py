"""What `python -m tapegrad doctor` finds, here and on machines that lack something."""

import os
import subprocess
import sys

from tapegrad import doctor


def told(**environment):
    done = subprocess.run(
        [sys.executable, "-m", "tapegrad", "doctor"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout


def test_a_machine_that_works(tmp_path):
    status, text = told(TAPEGRAD_CACHE_DIR=str(tmp_path))
    assert status == 0, text
    assert "WRONG" not in text
    for word in ("numba 0.", "cores", f"{tmp_path}, 0 tapes", "next door", "e-1"):
        assert word in text
    assert [line.split()[0] for line in text.splitlines()] == list(doctor._LOOKS)


def test_a_cache_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("no folder")
    status, text = told(TAPEGRAD_CACHE_DIR=str(tmp_path / "file"))
    assert status == 1
    assert "WRONG: " in text


def test_what_raises_is_a_finding(monkeypatch):
    def missing():
        raise ImportError("no such thing")

    monkeypatch.setitem(doctor._LOOKS, "machine", missing)
    found = {x.subject: x for x in doctor.findings()}
    assert found["machine"].is_wrong and found["machine"].text == "ImportError: no such thing"
    assert not found["self-test"].is_wrong


def test_a_python_whose_runs_are_not_observed_is_told(monkeypatch):
    """As one is that is newer than those whose frames are known."""
    from tapegrad.observe.program import watching

    assert not doctor._python().is_wrong
    monkeypatch.setattr(watching, "can_watch", lambda: False)
    found = doctor._python()
    assert found.is_wrong and "traced anew" in found.text


def test_wrong_gradients_are_told(monkeypatch):
    monkeypatch.setattr(doctor, "_slope", lambda x: x)
    assert doctor._self_test().is_wrong
