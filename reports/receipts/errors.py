"""The refusals of receipts: one line each, no data value."""

from __future__ import annotations


class ReceiptError(ValueError):
    """One line saying what does not match or cannot be used, where, and what to do."""


class ReceiptMissing(ReceiptError):
    """A key or a file that the answer depends on is not there, so nothing can be decided."""
