"""Points of the National Early Warning Score 2 for the vitals that are charted here, one table.

Source: Royal College of Physicians, National Early Warning Score (NEWS) 2, London 2017. Oxygen, consciousness and the
second saturation scale are not in the data: the sum is a part of the score and no clinical instrument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Per vital: upper ends of the bands, inclusive, and the points of every band, the one above the last end included.
BANDS: Mapping[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "rr": ((8, 11, 20, 24), (3, 1, 0, 2, 3)),
    "spo2": ((91, 93, 95), (3, 2, 1, 0)),
    "sbp": ((90, 100, 110, 219), (3, 2, 1, 0, 3)),
    "hr": ((40, 50, 90, 110, 130), (3, 1, 0, 1, 2, 3)),
    "temp": ((35.0, 36.0, 38.0, 39.0), (3, 1, 0, 1, 2)),
}


def points(values: Floats, channels: Sequence[str]) -> Floats:
    """Return the summed points of every hour, (n,): values (n, d) in the vitals' own units, a column a channel.

    Channels without bands, such as the diastolic pressure, give none.
    """
    total = np.zeros(len(values))
    for column, channel in enumerate(channels):
        if channel in BANDS:
            ends, given = BANDS[channel]
            total += np.asarray(given, dtype=np.float64)[np.searchsorted(ends, values[:, column], side="left")]
    return total
