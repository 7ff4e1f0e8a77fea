"""Measurements on arrays and frames."""
