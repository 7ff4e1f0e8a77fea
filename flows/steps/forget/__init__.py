"""Deletion of patients from everything a run derived from them, crash-safe, with signed receipts."""

from __future__ import annotations

from flows.steps.forget.recover import complete_pending

__all__ = ["complete_pending"]
