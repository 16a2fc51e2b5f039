"""The documentation keeps its word: its code runs, its shown output is what comes out, and no public name is left out."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

import sgmcmc

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "text", "sh", "r", "bibtex"}


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, the line it starts on, and whether it directly follows another."""

    language: str
    body: str
    line: int
    adjoins: bool


def blocks(page: Path) -> list[Block]:
    text, found, end = page.read_text(encoding="utf-8"), [], -1
    for match in FENCE.finditer(text):
        adjoins = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(match["info"].strip(), match["body"], text.count("\n", 0, match.start()) + 2, adjoins))
        end = match.end()
    return found


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_code_of_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python blocks run in order in one namespace; a text block right after one is what it printed (`...` for any text)."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "page"}
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    printed = ""
    for block in blocks(page):
        where = f"{page_id(page)}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: a block of {block.language!r}; expected one of {sorted(LANGUAGES)}"
        if block.language == "text" and block.adjoins:
            assert checker.check_output(block.body, printed, flags), f"{where}: shown\n{block.body}\nprinted\n{printed}"
        if block.language != "python":
            printed = ""
            continue
        code = compile("\n" * (block.line - 1) + block.body, str(page), "exec", dont_inherit=True)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as out:
            warnings.simplefilter("error")
            exec(code, namespace)
        printed = out.getvalue()


def test_shown_output_is_compared() -> None:
    """The control: a wrong number in a text block must be noticed."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output("variance 1.2...\n", "variance 1.243\n", flags)
    assert not doctest.OutputChecker().check_output("variance 1.3...\n", "variance 1.243\n", flags)


def public_names() -> list[str]:
    """Every name that users may import, with the module to import it from."""
    modules = (sgmcmc, sgmcmc.algorithms, sgmcmc.data, sgmcmc.testing)
    names = [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    return [*names, *(f"sgmcmc.sklearn.{name}" for name in sgmcmc.sklearn.__all__)]


@pytest.mark.parametrize("name", public_names())
def test_public_name_is_in_the_reference(name: str) -> None:
    reference = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    entries = [rf"^::: {re.escape(name)}$"]
    if name.count(".") == 1:  # a heading may stand for several of these, or for a module
        entries.append(rf"^#+ .*`{re.escape(name.removeprefix('sgmcmc.'))}`")
    found = any(re.search(entry, reference, re.MULTILINE) for entry in entries)
    assert found, f"docs/reference/api.md has no entry for {name}; add '::: {name}'"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    missing = [page for page in pages if f" {page}" not in navigation]
    assert not missing, f"mkdocs.yml does not list {missing}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page_id(page)} links to {target}, which is not there"
