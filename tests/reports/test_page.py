"""The page as a document: valid, accessible, closed to the network, the same bytes every time."""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from xml.etree.ElementTree import Element

import html5lib
import pytest
import sample

from reports.html import render_report

TEXT_LEVEL = {"span", "b", "a", "sup"}
BLOCK_LEVEL = {"div", "p", "table", "ul", "ol", "dl", "figure", "section", "h2", "h3"}


@pytest.fixture(scope="module", params=["measured", "simulated"])
def document(request, page: str, simulated_page: str) -> Element:
    """The parsed page; the strict parser refuses every parse error of the HTML standard."""
    text = page if request.param == "measured" else simulated_page
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)


def everything(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if isinstance(element.tag, str) and local(element) == name]


def local(element: Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def text_of(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_page_declares_language_encoding_title_and_viewport(document: Element) -> None:
    assert document.get("lang") == "en"
    assert everything(document, "title")[0].text
    names = {meta.get("name"): meta.get("content") for meta in everything(document, "meta")}
    assert names["viewport"] == "width=device-width, initial-scale=1"
    assert names["color-scheme"] == "light dark"
    assert any(meta.get("charset") == "utf-8" for meta in everything(document, "meta"))


def test_page_has_one_of_each_landmark_and_a_skip_link_to_main(document: Element) -> None:
    for name in ("header", "nav", "main", "footer"):
        assert len(everything(document, name)) == 1, name
    first_link = everything(document, "a")[0]
    assert first_link.get("href") == "#" + everything(document, "main")[0].get("id")


def test_headings_descend_without_a_gap_and_only_one_is_first(document: Element) -> None:
    levels = [int(local(e)[1]) for e in document.iter() if isinstance(e.tag, str) and re.fullmatch("h[1-6]", local(e))]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_ids_are_unique_and_every_reference_finds_one(document: Element) -> None:
    ids = Counter(e.get("id") for e in document.iter() if isinstance(e.tag, str) and e.get("id"))
    assert [name for name, times in ids.items() if times > 1] == []
    wanted = {a.get("href")[1:] for a in everything(document, "a")}
    for element in document.iter():
        if isinstance(element.tag, str):
            wanted |= set((element.get("aria-labelledby") or "").split())
    assert wanted - set(ids) == set()


def test_every_drawing_has_a_title_and_a_description_or_is_decoration(document: Element) -> None:
    drawings = everything(document, "svg")
    assert len(drawings) > 10
    for drawing in drawings:
        if drawing.get("aria-hidden") == "true":
            continue
        assert drawing.get("role") == "img"
        title, description = list(drawing)[:2]
        assert (local(title), local(description)) == ("title", "desc")
        assert len(title.text) > 5
        assert len(description.text) > 40


def test_every_table_has_a_caption_scoped_headers_and_a_focusable_named_scroll_area(document: Element) -> None:
    parents = {child: parent for parent in document.iter() for child in parent}
    tables = everything(document, "table")
    assert len(tables) >= 8
    for table in tables:
        assert text_of(everything(table, "caption")[0])
        assert all(th.get("scope") in {"col", "row", "colgroup", "rowgroup"} for th in everything(table, "th"))
        area = parents[table]
        assert (area.get("role"), area.get("tabindex")) == ("region", "0")
        assert area.get("aria-labelledby") == everything(table, "caption")[0].get("id")


def test_every_row_of_a_table_has_as_many_cells_as_its_head(document: Element) -> None:
    for table in everything(document, "table"):
        head = everything(everything(table, "thead")[0], "tr")[0]
        width = sum(int(cell.get("colspan", 1)) for cell in head)
        for body in everything(table, "tbody"):
            for row in everything(body, "tr"):
                assert sum(int(cell.get("colspan", 1)) for cell in row) == width


def test_every_figure_has_a_caption(document: Element) -> None:
    figures = everything(document, "figure")
    assert len(figures) == 6  # flow, coverage, two forests, two contrasts
    assert all(text_of(everything(figure, "figcaption")[0]) for figure in figures)


def test_block_elements_never_stand_inside_text_elements(document: Element) -> None:
    for outer in document.iter():
        if isinstance(outer.tag, str) and local(outer) in TEXT_LEVEL | {"p"}:
            inside = {local(e) for e in outer.iter() if e is not outer and isinstance(e.tag, str)}
            assert inside & BLOCK_LEVEL == set()


def test_page_runs_no_script_and_names_no_address_outside_itself(page: str) -> None:
    assert "<script" not in page
    assert re.search(r"\son\w+=", page) is None
    assert re.search(r"(?:https?:)?//\w", page) is None
    assert re.search(r"\b(?:src|srcset|action|xlink:href)=", page) is None
    assert "@import" not in page
    assert "url(" not in page
    assert " style=" not in page
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', page))


def test_policy_forbids_everything_but_the_one_style_sheet_of_the_page(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    sheets = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(sheets[0].encode()).digest()).decode()
    assert len(sheets) == 1
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_same_study_gives_same_bytes_in_another_process(page: str) -> None:
    code = (
        "import json, sys; from reports.html import render_report as r; "
        "sys.stdout.buffer.write(r(json.load(sys.stdin)).encode())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sample.study()).encode(),
        capture_output=True,
        check=True,
        env={"PYTHONHASHSEED": "17", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PATH": ""},
    )
    assert run.stdout == page.encode()


def test_order_of_rows_and_settings_does_not_change_the_bytes(page: str) -> None:
    study = sample.study()
    for name in ("retention", "contrasts"):
        study[name] = study[name][::-1]
    for name in ("settings", "versions", "queries"):
        study[name] = dict(reversed(study[name].items()))
    assert render_report(study) == page


def test_rendering_does_not_change_its_input() -> None:
    study = sample.study()
    before = copy.deepcopy(study)
    render_report(study)
    assert study == before


def test_text_from_the_study_is_escaped() -> None:
    study = sample.study()
    study["title"] = "<img src=x onerror=alert(1)> & more"
    study["attrition"]["stays"]["left_out"] = {"</text><script>alert(2)</script>": 72}
    page = render_report(study)
    assert "<img" not in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    html5lib.HTMLParser(strict=True).parse(page)


def test_a_study_with_nothing_optional_renders_and_says_what_is_missing() -> None:
    full = sample.study()
    wanted = ("title", "simulated", "source", "settings", "versions", "queries", "attrition")
    study = {name: full[name] for name in wanted} | {"coverage": [], "retention": [], "contrasts": []}
    page = render_report(study)
    html5lib.HTMLParser(strict=True).parse(page)
    for words in ("reported no coverage", "measured no retention", "computed no paired difference"):
        assert words in page
    assert "Deletion audit" not in page
