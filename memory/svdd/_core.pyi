"""The compiled core, seen through cffi."""

from typing import Any

ffi: Any
lib: Any
