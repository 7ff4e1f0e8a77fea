"""The run directory: layout, manifest, publication."""
