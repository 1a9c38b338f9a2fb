"""What counts as a line of code."""

from tests.project.size import lines_of_code

PROGRAM = '''"""A module."""

# a comment
import math  # and one beside code


def f(x):
    """What it does,
    in two lines."""

    text = """no docstring:
    code"""
    return math.sin(
        x  # an operand
    ), text
'''


def test_comments_docstrings_and_empty_lines_are_none():
    assert lines_of_code(PROGRAM) == 7
