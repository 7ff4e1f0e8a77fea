"""Opening a run that a study has begun."""

from __future__ import annotations

from flows.errors import FlowError
from flows.run.layout import RunLayout
from flows.run.manifest import Manifest, read_manifest
from flows.settings import Settings


def opened_manifest(layout: RunLayout) -> Manifest:
    """The manifest of a begun study; FlowError where there is none."""
    manifest = read_manifest(layout)
    if manifest is None:
        raise FlowError(
            f"run {layout.root}: has no manifest; make it with `icu-memory study SOURCE --out {layout.root}`"
        )
    return manifest


def opened_settings(layout: RunLayout) -> Settings:
    """The settings a study was begun with, as its manifest keeps them; neither flags nor environment count."""
    return Settings.model_validate(dict(opened_manifest(layout).settings))
