"""The self-contained HTML report."""

from reports.html.model import ReportError
from reports.html.render import render_report

__all__ = ["ReportError", "render_report"]
