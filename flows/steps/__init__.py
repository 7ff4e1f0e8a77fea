"""The steps of a study as plain functions."""
