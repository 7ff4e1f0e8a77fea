"""The summed kernel by which policies tell redundant hours from lonely ones, and the words that policies share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

Floats = NDArray[np.float64]
Hours = NDArray[np.int64]  # positions in the stay's hourly grid, ascending

BLOCK_CELLS = 1 << 21  # kernel entries held at one time, 16 MiB
SUM_DECIMALS = 9  # sums closer than this differ by summation order only and tie


def kernel_sums(keys: Floats, sigma: float) -> Floats:
    """Return the summed Gaussian kernel exp(-|a - b|^2 / sigma^2) of every key to all other keys, (n,).

    `keys` is (n, d). Sums run over distinct locations weighted by their copies, so that copies of a key tie exactly,
    and in blocks of rows, so that memory does not grow with n^2. Copies of a key count for each other, no hour for
    itself. Rounded to SUM_DECIMALS.
    """
    locations, member, copies = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    step = max(1, BLOCK_CELLS // len(locations))
    sums = [
        (np.exp(-cdist(locations[start : start + step], locations, "sqeuclidean") / sigma**2) * copies).sum(axis=1)
        for start in range(0, len(locations), step)
    ]
    return np.asarray(np.round(np.concatenate(sums) - 1.0, SUM_DECIMALS)[member.ravel()], dtype=np.float64)
