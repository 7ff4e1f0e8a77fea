"""The sample study, rendered once for all tests of the page."""

from __future__ import annotations

import pytest
import sample

from reports.html import render_report


@pytest.fixture(scope="session")
def page() -> str:
    return render_report(sample.study())


@pytest.fixture(scope="session")
def simulated_page() -> str:
    return render_report(sample.study(simulated=True))
