"""Years with many earthquakes come in spells: a hidden Markov model of their yearly counts.

The earth is in one of three states, each with its own rate, which nobody sees. The likelihood of
the counts is a recursion over the years in logarithms, a plain loop with SciPy's `logsumexp`; its
gradient, by the rates and the odds of changing state, goes to SciPy's minimiser. The counts are of
the world's earthquakes of magnitude 7 or more from 1900 to 2006 (U.S. Geological Survey).
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import poisson

from tapegrad import grad, value_and_grad

COUNTS = np.fromstring(
    """13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13
    26 13 14 22 24 21 22 26 21 23 24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18
    15 20 15 22 19 16 30 27 29 23 20 16 21 21 25 16 18 15 18 14 10 15 8 15 6 11 8 7 18 16 13 12
    13 20 15 16 12 18 15 16 13 15 16 11 11""",
    dtype=int,
    sep=" ",
)
STATES = 3


def unpacked(params):
    """Log rates, log probabilities of the first state, and of the next one for each state."""
    rates, first = params[:STATES], params[STATES : 2 * STATES]
    changes = np.reshape(params[2 * STATES :], (STATES, STATES))
    return rates, log_softmax(first), log_softmax(changes, axis=1)


def log_likelihood(params, seen):
    """Of the seen counts; `forward` is that of what was seen so far and of each state."""
    rates, first, changes = unpacked(params)
    emitted = poisson.logpmf(seen[:, None], np.exp(rates))
    forward = first + emitted[0]
    for t in range(1, len(seen)):
        forward = logsumexp(forward[:, None] + changes, axis=0) + emitted[t]
    return logsumexp(forward)


def loss(params, seen):
    return -log_likelihood(params, seen) / len(seen)


def chances(params, seen):
    """The probability of each state in each year, given all counts: what the log likelihood gains
    where the counts of that year in that state are e times as likely."""
    rates, first, changes = unpacked(params)
    emitted = poisson.logpmf(seen[:, None], np.exp(rates))

    def likelihood(emitted):
        forward = first + emitted[0]
        for t in range(1, len(seen)):
            forward = logsumexp(forward[:, None] + changes, axis=0) + emitted[t]
        return logsumexp(forward)

    return grad(likelihood)(emitted)


def draw(params, output):
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    years = 1900 + np.arange(len(COUNTS))
    rates, odds = np.exp(params[:STATES]), chances(params, COUNTS)
    order = np.argsort(rates)
    above.plot(years, COUNTS, ".-", color="gray", linewidth=0.7, label="counted")
    above.plot(years, odds @ rates, color="tab:red", label="expected rate")
    above.set(title="Earthquakes of magnitude 7 or more", ylabel="in the year")
    above.legend(fontsize="small")
    labels = [f"rate {rate:.1f}" for rate in rates[order]]
    below.stackplot(
        years, odds[:, order].T, labels=labels, colors=("#cfe8f3", "#73bfe2", "#12719e")
    )
    below.set(xlabel="year", ylabel="state", xlim=(1900, 2006), ylim=(0, 1))
    below.legend(fontsize="x-small", loc="lower right")
    figure.savefig(output, dpi=90)


def main(output=Path("hidden_markov.png")):
    """Fit, and draw; returns the rates, and the log likelihood of all counts."""
    stay = 2.0 * np.eye(STATES)
    start = np.concatenate([np.log([12.0, 20.0, 28.0]), np.zeros(STATES), stay.ravel()])
    fit = minimize(value_and_grad(loss), start, (COUNTS,), jac=True, method="L-BFGS-B")
    rates, found = np.exp(fit.x[:STATES]), -len(COUNTS) * fit.fun
    print(f"log likelihood {log_likelihood(start, COUNTS):.2f} -> {found:.2f}")
    print("rates", rates.round(2))
    draw(fit.x, output)
    return rates, found


if __name__ == "__main__":
    main()
