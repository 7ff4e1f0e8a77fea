"""The page for the requester: one HTML file that loads nothing and runs nothing."""

from __future__ import annotations

import base64
import hashlib

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.receipts.bundle import Bundle
from reports.receipts.words import sections, title

_TEMPLATES = PackageLoader("reports.receipts", "templates")


def render_receipt(bundle: Bundle, *, checked: bool) -> str:
    """The receipt in plain words as HTML; ``checked`` says whether the keys were compared with known ones.

    The same receipt gives the same bytes.  The page proves nothing: the receipt file does, and the page says so.
    """
    environment = Environment(
        loader=_TEMPLATES, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = _TEMPLATES.get_source(environment, "receipt.css")[0].strip()
    return environment.get_template("receipt.html.j2").render(
        title=title(bundle),
        facts=bundle.facts,
        sections=[section for section in sections(bundle) if section.sentences or section.pairs],
        checked=checked,
        style=style,
        style_hash=base64.b64encode(hashlib.sha256(f"\n{style}\n".encode()).digest()).decode(),
    )
