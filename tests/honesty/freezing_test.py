"""The tests of this folder are shown to see what they are for: most of them fail on a tracer that
keeps no promise, whose first tape answers every later call (`pytest --freeze`)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = [
    "control_flow",
    "captured_state",
    "reached_state",
    "observed_state",
    "randomness",
    "side_effects",
]

# What such a tracer gets right too.
BY_TYPES = {  # a tape is for arguments of some shapes, dtypes, structure and static values
    "test_truth_of_an_array",
    "test_iterating_a_traced_array",
    "test_isinstance",
    "test_other_ways_to_ask_for_the_kind",
    "test_shapes_and_dtypes",
    "test_static_arguments",
    "test_numbers_where_arrays_were",
    "test_dictionaries_whose_keys_change",
    "test_lambdas_made_in_a_loop",
    "test_two_functions_from_one_text",
    "test_what_cannot_change",
}
IN_THE_FIRST_TRACE = {  # errors and words that don't wait for a second call
    "test_an_exact_sum_of_traced_numbers",
    "test_numbers_that_are_remembered",
    "test_texts_that_seem_to_be_shown",
    "test_a_table_of_results",
    "test_a_method_that_keeps_traced_values",
    "test_a_callback_that_reaches_what_the_call_creates",
    "test_simplegrad_is_for_one_state",
    "test_simplegrad_is_for_some_arguments",
    "test_print",
    "test_texts_with_a_name",
    "test_repr",
    "test_logging",
    "test_an_inner_function",
    "test_a_leak_that_nobody_can_see",
    "test_rounds_that_are_traced_once",
    "test_parameters_that_numbers_jump_with",
    "test_values_returned_instead",
    "test_values_kept_and_files",
    "test_containers_that_are_put_back",
    "test_arrays_that_are_put_back",
    "test_a_trace_that_is_made_again",
    "test_arrays_that_outlive_a_trace_that_fails",
}
NOTHING_TO_FREEZE = {  # draws that are allowed, and comparisons that have one answer
    "test_a_generator_with_a_seed",
    "test_vjp_draws_at_each_call",
    "test_draws_that_are_passed_in",
    "test_keys",
    "test_keys_are_functions_of_the_seed",
    "test_a_draw_elsewhere",
    "test_equality_with_zero",
    "test_a_legacy_generator_with_a_seed",
    "test_a_local_that_is_called_as_a_builtin",
    "test_a_buffer_of_the_outside",  # which is copied when it has been filled
    "test_a_rule_that_is_replaced",  # `defvjp` says so by itself
}

ELSEWHERE = {  # in a process of their own, whose tracer keeps its promises
    "test_a_module_that_is_loaded_while_the_function_runs",
    "test_a_module_that_the_function_itself_loads",
}


def test_a_tracer_that_freezes_fails():
    files = [f"tests/honesty/{part}_test.py" for part in PARTS]
    once = "not nested and not compiled and not always"
    options = ["--freeze", "-q", "-rfp", "-k", once, "--tb=no", "-p", "no:cacheprovider"]
    run = [sys.executable, "-m", "pytest", *options, *files]
    found = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600).stdout
    passed = set(re.findall(r"^PASSED \S+::(\w+)", found, re.M))
    failed = set(re.findall(r"^FAILED \S+::(\w+)", found, re.M))
    assert passed - failed <= BY_TYPES | IN_THE_FIRST_TRACE | NOTHING_TO_FREEZE | ELSEWHERE
    assert len(failed) > 60, found[-2000:]
