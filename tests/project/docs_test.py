"""The site holds together: `make docs` builds it of these pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
SITE = (ROOT / "mkdocs.yml").read_text()
LINK = re.compile(r"\]\(([^)\s#]+)(#[\w-]+)?\)")


def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_page_is_on_the_site():
    assert sorted(re.findall(r": (\w+\.md)$", SITE, re.M)) == [page.name for page in PAGES]


def test_links_lead_somewhere():
    shown = {page.name: page.read_text() for page in PAGES}
    shown = {name: hooks().on_page_markdown(text) for name, text in shown.items()}
    for name, text in shown.items():
        for target, _ in LINK.findall(text):
            if "://" not in target:
                assert (ROOT / "docs" / target).exists(), f"{name}: {target}"


def test_each_example_is_in_the_gallery():
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f"{{#{path.stem}}}" in gallery and f"<!-- examples/{path.name} -->" in gallery


def test_the_gallery_shows_the_texts():
    gallery = hooks().on_page_markdown((ROOT / "docs" / "gallery.md").read_text())
    first = (ROOT / "examples" / "ode_fit.py").read_text().splitlines()[0]
    assert f"    {first}" in gallery
