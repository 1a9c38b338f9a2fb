"""What MkDocs does besides: links into the repository go to pages, and the gallery shows each
example's text."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# ```python loss.py: what follows the language is for the tests.
FENCE = re.compile(r"^```python[^\n]+$", re.M)
# What is in the repository and not on the site
ELSEWHERE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
EXAMPLE = re.compile(r"<!-- examples/(\w+)\.py -->")


def on_page_markdown(markdown, **_):
    markdown = EXAMPLE.sub(text_of, ELSEWHERE.sub(r"\1", markdown))
    return FENCE.sub("```python", markdown)


def text_of(match):
    text = (ROOT / "examples" / f"{match[1]}.py").read_text(encoding="utf-8")
    return f'??? example "examples/{match[1]}.py"\n\n' + "".join(
        f"    {line}\n" for line in ["```python", *text.splitlines(), "```"]
    )
