"""HTML in which whatever is not markup already is escaped."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML as it is."""

    __slots__ = ()


def element(tag: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element; `class_` stands for `class`, and attributes of None are left out."""
    given = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    told = "".join(f' {name}="{escape(str(value))}"' for name, value in given)
    return Markup(f"<{tag}{told}>{joined(children)}</{tag}>")


def joined(parts: Iterable[Any], between: str = "") -> Markup:
    """Parts one after the other."""
    return Markup(
        (between if isinstance(between, Markup) else escape(between)).join(
            part if isinstance(part, Markup) else escape(str(part)) for part in parts
        )
    )


def bullets(items: Iterable[Any], **attributes: Any) -> Markup:
    """A list."""
    return element("ul", *(element("li", item) for item in items), **attributes)


def pairs(values: Mapping[str, Any]) -> Markup:
    """A table of names and values."""
    left = {"style": "text-align: left"}
    told = ((element("th", name, scope="row", **left), element("td", value, **left)) for name, value in values.items())
    rows = (element("tr", *both) for both in told)
    return element("table", element("tbody", *rows))
