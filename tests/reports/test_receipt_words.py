"""Receipts in plain words and as a page that loads and runs nothing."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import html5lib
import pytest
from receipt_sample import Sample, request

from reports.receipts import vocabulary
from reports.receipts.bundle import read_bundle
from reports.receipts.page import render_receipt
from reports.receipts.words import plain_words


@pytest.fixture
def bundle(tmp_path):
    return read_bundle(Sample.at(tmp_path).receipt())


def test_plain_words_tell_every_field(bundle):
    text = " ".join(plain_words(bundle).split())
    for told in (
        "consent withdrawn", "data steward", "2026-03-02T09:00:00Z", "the hourly vitals", "1 of 2 completed",
        "1 because the work was interrupted", "at most 1e-9", "not measured", "2.4.1", bundle.facts.commitment,
        bundle.facts.state_digest, bundle.facts.run_id, vocabulary.CHECKS["tables"],
        vocabulary.NOT_COVERED["media remanence"], "It cannot show that no copy exists elsewhere",
    ):  # fmt: skip
        assert told in text, told
    assert max(map(len, plain_words(bundle).splitlines())) <= 100


def test_the_page_is_valid_self_contained_and_readable_without_scripts(bundle):
    page = render_receipt(bundle, checked=True)
    html5lib.HTMLParser(strict=True).parse(page)
    assert '<html lang="en">' in page
    assert "default-src 'none'" in page
    assert not re.search(r"<script|\ssrc=|href=\"(?!#)|url\(|@import|\son\w+=|\sstyle=", page)
    assert "prefers-color-scheme: dark" in page
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
    expected = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{expected}'" in page


def test_the_page_says_whether_the_keys_were_checked(bundle):
    assert "were checked against known keys" in render_receipt(bundle, checked=True)
    assert "was not checked" in render_receipt(bundle, checked=False)
    assert render_receipt(bundle, checked=True) == render_receipt(bundle, checked=True)


def test_text_of_the_request_cannot_become_markup(tmp_path):
    told = replace(request(), basis="<script>alert(1)</script>")
    page = render_receipt(read_bundle(Sample.at(tmp_path).receipt(request=told)), checked=False)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_every_word_of_the_vocabulary_has_a_meaning():
    tables = [value for name, value in vars(vocabulary).items() if name.isupper() and isinstance(value, dict)]
    assert len(tables) == 9
    assert all(word and meaning for table in tables for word, meaning in table.items())
