"""The report in a real browser: silent, closed, never wider than its window, legible in the dark and on paper."""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser

from reports.html import render_report

pytestmark = pytest.mark.integration

SAMPLE = Path(__file__).parents[1] / "reports" / "sample.py"
WIDTHS = (320, 400, 768, 1400)

CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const low = new Set();
  let texts = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    if (element.closest("title, desc, style")) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const ink = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.add(element.className.baseVal ?? element.className);
  }
  return {texts, low: [...low].sort()};
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module", params=["measured", "simulated"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    spec = importlib.util.spec_from_file_location("report_sample", SAMPLE)
    sample = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sample)
    folder = tmp_path_factory.mktemp("a report's folder")
    path = folder / "report.html"
    path.write_text(render_report(sample.study(simulated=request.param == "simulated")), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_page_is_silent_and_asks_for_nothing_but_itself(browser: Browser, url: str, dark: bool) -> None:
    with browser.page(url, width=1400, dark=dark) as page:
        assert page.complaints() == []
        assert page.requests() == [url]


def test_policy_of_the_page_blocks_a_script_a_picture_and_a_request(browser: Browser, url: str) -> None:
    """The policy is in force: what a tampered page tried would be refused (and the driver would see it)."""
    with browser.page(url, width=1400) as page:
        page.evaluate(
            """new Promise(done => {
              const picture = new Image(); picture.src = "https://example.invalid/x.png"; document.body.append(picture);
              const script = document.createElement("script"); script.textContent = "window.ran = true";
              document.body.append(script);
              fetch("https://example.invalid/y").then(done, done);
            })"""
        )
        assert page.evaluate("window.ran") is None
        assert sum("Content Security Policy" in text for text in page.complaints()) >= 3
        assert not [event for event in page.events("Network.responseReceived") if "invalid" in event["response"]["url"]]


@pytest.mark.parametrize("width", WIDTHS)
def test_page_is_never_wider_than_its_window(browser: Browser, url: str, width: int) -> None:
    with browser.page(url, width=width) as page:
        sizes = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert sizes == [width, width]
        outside = page.evaluate(
            """[...document.querySelectorAll("main *, header *, footer *")].filter(e => !e.closest(".scroll")
              && !e.closest("svg *") && e.getClientRects().length
              && e.getBoundingClientRect().right > innerWidth + 0.5).length"""
        )
        assert outside == 0


@pytest.mark.parametrize("width", [400, 1400])
def test_every_table_can_be_reached_and_scrolled_to_its_last_column(browser: Browser, url: str, width: int) -> None:
    with browser.page(url, width=width) as page:
        stuck = page.evaluate(
            """[...document.querySelectorAll(".scroll")].filter(area => {
              area.focus(); area.scrollLeft = 1e6;
              const last = area.querySelector("tbody tr:last-child > :last-child").getBoundingClientRect();
              return document.activeElement !== area || last.right > area.getBoundingClientRect().right + 1;
            }).length"""
        )
        assert stuck == 0


@pytest.mark.parametrize(("width", "shown", "smallest"), [(400, "narrow", 10), (1400, "wide", 10)])
def test_one_drawing_of_each_figure_is_shown_and_its_text_can_be_read(
    browser: Browser, url: str, width: int, shown: str, smallest: float
) -> None:
    with browser.page(url, width=width) as page:
        visible = page.evaluate(
            """[...document.querySelectorAll(".wide, .narrow")].filter(e => e.getClientRects().length)
              .map(e => e.className)"""
        )
        assert visible == [shown] * 5
        size = page.evaluate(
            """Math.min(...[...document.querySelectorAll("figure svg text")].filter(e => e.getClientRects().length)
              .map(e => parseFloat(getComputedStyle(e).fontSize) * e.getCTM().a))"""
        )
        assert size >= smallest


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_all_text_as_painted_has_a_contrast_of_four_and_a_half(
    browser: Browser, url: str, width: int, dark: bool
) -> None:
    with browser.page(url, width=width, dark=dark) as page:
        found = page.evaluate(f"({CONTRAST})()")
        assert found["texts"] > 500
        assert found["low"] == []


def test_dark_scheme_is_dark_and_paper_is_white_in_both(browser: Browser, url: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with browser.page(url, width=1400, dark=True) as page:
        assert max(map(int, re.findall(r"\d+", page.evaluate(ground)))) < 40
        page.media("print", dark=True)
        assert page.evaluate(ground) == "rgb(255, 255, 255)"
        assert page.evaluate(f"({CONTRAST})()")["low"] == []


def test_printing_drops_navigation_and_cuts_no_table(browser: Browser, url: str) -> None:
    with browser.page(url, width=695) as page:  # the printable width of A4
        page.media("print")
        assert page.evaluate("getComputedStyle(document.querySelector('.contents')).display") == "none"
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        page.media()
        paper = page.pdf()
    assert paper.startswith(b"%PDF-")
    assert len(paper) > 50_000
    pages = paper.count(b"/Type /Page\n") or paper.count(b"/Type/Page/")
    assert 5 <= pages <= 30


def test_skip_link_appears_on_the_first_tab_and_leads_to_the_results(browser: Browser, url: str) -> None:
    with browser.page(url, width=1400) as page:
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("document.activeElement.getBoundingClientRect().top >= 0")
        page.evaluate("document.activeElement.click()")
        assert page.evaluate("location.hash") == "#main"


def test_page_reads_the_same_with_scripts_switched_off(browser: Browser, url: str) -> None:
    with browser.page(url, width=1400) as page:
        text = page.evaluate("document.body.innerText")
        page.reload(scripts=False)
        assert page.evaluate("document.body.innerText") == text


def test_a_screenshot_is_not_blank(browser: Browser, url: str, tmp_path: Path) -> None:
    with browser.page(url, width=1400) as page:
        page.screenshot(tmp_path / "cohort.png", "#cohort")
    picture = (tmp_path / "cohort.png").read_bytes()
    data = b"".join(re.findall(rb"IDAT(.*?)(?=.{8}I(?:DAT|END))", picture, re.DOTALL))
    assert picture.startswith(b"\x89PNG")
    assert len(set(zlib.decompressobj().decompress(data)[:2_000_000])) > 20
