"""MIMIC-IV files to hourly tokens."""
