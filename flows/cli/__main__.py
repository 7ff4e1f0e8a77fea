"""`python -m flows.cli` is `icu-memory`."""

from __future__ import annotations

import sys

from flows.cli import main

sys.exit(main())
