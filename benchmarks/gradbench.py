"""GradBench's evals: a tool that answers them in tapegrad, on standard input and output.

./gradbench run --eval "./gradbench repo eval gmm" --tool "python benchmarks/gradbench.py"

With a clone of GradBench whose golden implementations are built, it holds the evals itself: it says
how many results they found valid, and how long each function's first call takes, and the median of
the others. EVALS are names, with options of their own.

\b
python benchmarks/gradbench.py CLONE
python benchmarks/gradbench.py CLONE 'gmm -d 2 10 -k 5' lse
python benchmarks/gradbench.py CLONE --beside 'python /a/tool/run.py'
"""

import contextlib
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path

import click
from clock import OutOfTime, time_limit


def answer(message):
    """What the tool says to a message."""
    given = {"id": message["id"]}
    try:
        match message["kind"]:
            case "start":
                return {**given, "tool": "tapegrad"}
            case "define":
                from evals import EVALS

                return {**given, "success": message["module"] in EVALS}
            case "evaluate":
                return {**given, "success": True, **evaluated(message)}
    except Exception:
        return {**given, "success": False, "error": traceback.format_exc()}
    return given


def evaluated(message):
    """The result, and the time of each call: as many as the eval asks for."""
    from evals import EVALS

    given = message["input"]
    limits = given if isinstance(given, dict) else {}
    call, shown = EVALS[message["module"]][message["function"]](given)
    times = []
    while len(times) < limits.get("min_runs", 1) or sum(times) < 1e9 * limits.get("min_seconds", 0):
        start = time.perf_counter_ns()
        result = call()
        times.append(time.perf_counter_ns() - start)
    timings = [{"name": "evaluate", "nanoseconds": spent} for spent in times]
    return {"output": shown(result), "timings": timings}


def serve():
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything else prints is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=results, flush=True)


def session(evaluation, tool, clone):
    """The messages of an eval with the tool's answers, until the eval ends or the tool does."""
    paths = [str(clone / "python" / "gradbench"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with contextlib.ExitStack() as stack:
        asking, answering = (
            stack.enter_context(
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=clone,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for command in (evaluation, tool)
        )
        stack.callback(asking.kill)
        stack.callback(answering.kill)
        while line := asking.stdout.readline():
            print(line, end="", file=answering.stdin, flush=True)
            if not (response := answering.stdout.readline()):
                return
            yield json.loads(line), json.loads(response)
            print(response, end="", file=asking.stdin, flush=True)


def held(evaluation, tool, clone, limit):
    """By function and description: the first time in ms, the median of the others, and what was
    wrong, if anything: None as long as the eval hasn't said."""
    found, keys = {}, {}
    try:
        with time_limit(limit):
            for message, response in session(evaluation, tool, clone):
                if message["kind"] == "evaluate":
                    key = message["function"], message.get("description", str(message["input"]))
                    keys[message["id"]] = key
                    first, *others = [
                        timing["nanoseconds"] / 1e6 for timing in response.get("timings", [])
                    ] or [math.nan]
                    wrong = response.get("error", "no answer").strip().splitlines()[-1]
                    then = statistics.median(others) if others else math.nan
                    found[key] = (first, then, None if response["success"] else wrong)
                elif message["kind"] == "analysis":
                    key, error = keys[message["of"]], message.get("error", "not valid").strip()
                    wrong = "" if message["valid"] else error.splitlines()[-1]
                    found[key] = (*found[key][:2], wrong)
    except OutOfTime as late:
        found["", str(late)] = (math.nan, math.nan, None)
    return found


@click.command(help=__doc__)
@click.argument("clone", required=False, type=click.Path(exists=True, path_type=Path))
@click.argument("evals", nargs=-1)
@click.option("--beside", help="The command of another tool.")
@click.option("--python", default=sys.executable, help="What has the packages that evals need.")
@click.option("--limit", default=600.0, help="Seconds for an eval and a tool.")
def main(clone, evals, beside, python, limit):
    if not clone:
        serve()
        return
    clone, valid, others = clone.resolve(), 0, 0
    evals = evals or sorted(path.name for path in (clone / "evals").iterdir())
    for name, *options in map(shlex.split, evals):
        evaluation = [python, "-m", f"gradbench.evals.{name}.run", *options]
        ours = held(evaluation, [sys.executable, str(Path(__file__).resolve())], clone, limit)
        theirs = held(evaluation, shlex.split(beside), clone, limit) if beside else {}
        for key, (*spent, wrong) in ours.items():
            valid, others = valid + (wrong == ""), others + (wrong != "")
            state = {"": "valid", None: "not held against anything"}.get(wrong, f"WRONG: {wrong}")
            text = f"{name:9} {key[0]:10} {key[1]:24} {spent[0]:10.3f} ms, then {spent[1]:9.3f}"
            if key in theirs:
                text += f"  the other's {theirs[key][0]:10.3f} ms, then {theirs[key][1]:9.3f}"
            click.echo(f"{text}  {state}")
    click.echo(f"{valid} results are valid, {others} are not known to be")
    if others:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
