"""The refusals of this room."""

from __future__ import annotations


class EvaluationError(ValueError):
    """A measurement that cannot be made from what it was given; one line that holds no data value and no id."""
