"""Builds the compiled core of the support-vector memory; everything else is declared in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["memory/svdd/core/build_core.py:builder"])
