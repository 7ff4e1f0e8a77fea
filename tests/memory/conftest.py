"""Makes the stream generators importable by the memory tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
