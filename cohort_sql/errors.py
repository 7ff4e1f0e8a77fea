"""The refusals of this room: one line each, with file, column or count and what to do, and never a data value."""

from __future__ import annotations


class SourceError(ValueError):
    """The source files cannot be used as they are."""


class CohortError(ValueError):
    """The cohort cannot be built from this source with these settings."""
