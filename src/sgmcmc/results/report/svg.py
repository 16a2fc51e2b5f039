"""Figures of matplotlib as SVG inside a page: the same bytes for the same figure, in the colours of the page, light or dark."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.figure import Figure

from sgmcmc.core.html import Markup

INK, FAINT, BAND, PAPER = "#010203", "#040506", "#070809", "#0a0b0c"
CHAINS = tuple(f"#0d0e{number:02x}" for number in range(8))
"""Colours by which figures are drawn, each of which stands for one of the page's."""

ELSEWHERE = {"#000000": "currentColor", "#777777": "var(--faint)", "#0072b2": "var(--c0)", "#d55e00": "var(--c4)"}
"""Colours of pictures that are not made for the page alone."""

COLOURS = ELSEWHERE | {INK: "currentColor", FAINT: "var(--faint)", BAND: "var(--band)", PAPER: "var(--card)"}
COLOURS |= {colour: f"var(--c{number})" for number, colour in enumerate(CHAINS)}

STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "sgmcmc", "text.parse_math": False, "text.usetex": False, "font.size": 8.5,
    "font.family": ["sans-serif"], "font.sans-serif": ["DejaVu Sans"], "axes.spines.top": False, "axes.spines.right": False,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "axes.linewidth": 0.8, "path.simplify": False, "axes.facecolor": "none",
    "figure.facecolor": "none", "savefig.facecolor": "none", "axes.unicode_minus": True, "path.sketch": None,
    "axes.formatter.use_mathtext": False, "axes.formatter.useoffset": True, "axes.formatter.limits": (-4, 5),
}  # fmt: skip


@contextmanager
def drawing() -> Iterator[None]:
    """Figures made inside have the page's style, whatever the user's is."""
    defaults = {
        name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith(("backend", "interactive"))
    }
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")  # names in letters that matplotlib's font lacks: the reader's has them
        matplotlib.rcParams.update(defaults | STYLE)
        yield


def inline(figure: Figure, name: str, told: str) -> Markup:
    """The figure as an element that scales with the page; `name` keeps its references apart from those of others."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = _own_references(svg, name)
    svg = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg)
    for colour, meant in COLOURS.items():
        svg = svg.replace(colour, meant)
    head = re.match(r"<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", svg)
    assert head is not None  # matplotlib writes one
    opening = f'<svg viewBox="{head[1]}" role="img" aria-label="{_attribute(told)}">'
    rest = re.sub(r">\s+<", "><", svg[head.end() :]).replace(" \n", "").replace("xlink:href", "href")
    return Markup(opening + rest.strip())


def _own_references(svg: str, name: str) -> str:
    """Without ids that nothing refers to, and the others with the figure's name before them."""
    used = set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    return re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
