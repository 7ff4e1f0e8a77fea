"""Times of receipts: RFC 3339 in UTC, whole minutes, so that no duration of the work on a patient can be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from reports.receipts.errors import ReceiptError

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:00Z")


def moment(instant: datetime | None = None) -> str:
    """The minute in which an instant lies (now by default), such as 2026-01-31T13:05:00Z."""
    return (instant or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:00Z")


def checked_moment(text: object, what: str) -> str:
    """``text`` when it is a whole minute in UTC; ReceiptError otherwise.  Moments compare as their texts do."""
    try:
        if not isinstance(text, str) or not _MOMENT.fullmatch(text):
            raise ValueError
        datetime.fromisoformat(text)
    except ValueError:
        raise ReceiptError(f"{what}: is no whole minute such as 2026-01-31T13:05:00Z; it was changed") from None
    return text
