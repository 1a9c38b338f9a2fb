"""Functions that run coroutines in an event loop of their own."""

import asyncio
import enum
import re

import numpy as np
import pytest

from tapegrad import value_and_grad
from tapegrad.errors import ConversionError

pytestmark = pytest.mark.filterwarnings("ignore:.*was traced for three calls")


def plain(x):
    async def main():
        return x[0] * 2

    return asyncio.run(main())


def by_loop(x):
    async def main():
        await asyncio.sleep(0)
        return x[0] * 2

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def gathered(x):
    async def one(k):
        await asyncio.sleep(0)
        return x[k] * 2

    async def main():
        task = asyncio.create_task(one(0))
        await asyncio.gather(one(0), one(1))
        return await asyncio.wait_for(task, 5)

    return asyncio.run(main())


@pytest.mark.every(2)
@pytest.mark.parametrize("f", [plain, by_loop, gathered])
def test_a_coroutine_returns_a_traced_value(f):
    """`asyncio.run` of a coroutine that returns a traced value -> followed; the event loop has the
    function traced at each call, and a warning says so"""
    df = value_and_grad(f, compile="never")
    for k in range(4):
        value, gradient = df(np.array([1.0 + k, 2.0]))
        assert value == 2 + 2 * k
        np.testing.assert_array_equal(gradient, [2, 0])


class Colour(enum.Enum):
    RED = 1


def test_no_number_is_read_from_the_message_of_an_error_that_pythons_library_raises():
    """a number is made of the text of an error that Python's library has raised -> refused"""

    def f(x):
        try:
            Colour([x[0]])
        except ValueError as error:
            return x[1] * float(re.findall(r"\d+\.\d+", str(error))[0])
        return x[1]

    with pytest.raises(ConversionError, match=r"the text of a traced value .* a number again"):
        value_and_grad(f, compile="never")(np.array([1.25, 2.0]))
