"""Every number a user may set, once; flags beat the environment, the environment beats the file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from evaluation import published
from flows.errors import UsageProblem

Channel = Literal["hr", "sbp", "rr", "spo2", "temp"]

QUICK: dict[str, Any] = {"stays": 40, "bootstrap_draws": 1000, "simulated_patients": 80, "recall_events": 2}

_OPERATIONAL: JsonDict = {"operational": True}


class Settings(BaseModel):
    """The one settings model; fields marked operational change how a study runs, never what it finds.

    Hours are whole hours, sigma is in standard deviations of the standardised vitals.  ``stays`` of the published
    preset defaults to the 1,500 that were drawn; None takes every eligible stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Literal["causal", "paper"] = Field("causal", description="Cohort rules: careful, or as published.")
    stays: int | None = Field(None, ge=1, description="Draw at most this many eligible stays.")
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Seed of the draw of stays and of the patient split.")
    buckets: int = Field(16, ge=1, le=256, description="Groups of patients; the unit of work, retry and resume.")
    held_out: Channel | None = Field(None, description="Report one held-out channel instead of all of them.")
    memories: Annotated[tuple[Literal["svdd", "vla", "nc01"], ...], NoDecode] = Field(
        ("svdd", "vla", "nc01"), description="Online memories, by comma: svdd, vla, nc01."
    )
    directions: int = Field(64, ge=2, le=1024, description="Width of the keys of the VLA and NC01 memories.")
    vla_gain: Literal["ridge", "unit"] = Field("ridge", description="Write rule of VLA: ridge regression or published.")
    nc01_alpha: float = Field(0.995, ge=0, lt=1 - 2**-12, description="Share of an NC01 bank that outlives an hour.")
    nc01_novelty_width: float = Field(0.5, gt=0, description="Kernel width, among unit keys, of NC01's novelty offers.")
    nu: float = Field(published.NU, gt=0, le=1, description="Expected share of support hours.")
    sigma: float = Field(published.SIGMA, gt=0, description="Kernel width, in standard deviations of the vitals.")
    declared_hours: int = Field(48, ge=1, description="Hours n0 that set the streamed bound C = 1 / (nu * n0).")
    wards: int = Field(4, ge=1, le=256, description="Support-vector memories that patients share, by hash.")
    ward_hours: int = Field(2000, ge=1, description="Hours n0 that set the bound C = 1 / (nu * n0) of a ward.")
    recall_events: int = Field(
        8, ge=0, description="Event hours asked of each stay in the measure of net recall; 0 leaves it out."
    )
    support_threshold: float = Field(
        published.SUPPORT_THRESHOLD, gt=0, lt=1, description="Coefficients above it count as support."
    )
    bootstrap_draws: int = Field(published.DRAWS, ge=2, description="Bootstrap draws of the paired differences.")
    bootstrap_seed: int = Field(published.SEED, ge=0, description="Seed of the bootstrap.")
    audit_trials: int = Field(
        20, ge=1, description="Trials of each regime of the audit.", json_schema_extra=_OPERATIONAL
    )
    bench_rows: int = Field(20_000_000, ge=1000, description="Chart rows of the bench.", json_schema_extra=_OPERATIONAL)
    simulated_patients: int = Field(
        300, ge=1, description="Patients of the source `simulated`.", json_schema_extra=_OPERATIONAL
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Where batched memories run.", json_schema_extra=_OPERATIONAL
    )
    runner: Literal["threads", "dask"] = Field("threads", description="Engine.", json_schema_extra=_OPERATIONAL)
    workers: int | None = Field(None, ge=1, description="Buckets at a time.", json_schema_extra=_OPERATIONAL)
    dask_address: str | None = Field(
        None, description="Scheduler of a running Dask cluster; else a local one.", json_schema_extra=_OPERATIONAL
    )
    task_timeout: int | None = Field(
        None, ge=1, description="Seconds that one bucket may take.", json_schema_extra=_OPERATIONAL
    )
    threads: int | None = Field(None, ge=1, description="Threads of DuckDB.", json_schema_extra=_OPERATIONAL)
    memory_limit: str = Field(
        "2GiB", pattern=r"^[0-9.]+ ?[KMGT]i?B$", description="Memory of DuckDB.", json_schema_extra=_OPERATIONAL
    )
    show_records: bool = Field(False, description="Show small counts in the report.", json_schema_extra=_OPERATIONAL)
    annex_days: int = Field(
        1095, ge=1, description="Days after which the annex of a deletion is destroyed.", json_schema_extra=_OPERATIONAL
    )
    state: Path | None = Field(None, description="The site's state directory.", json_schema_extra=_OPERATIONAL)

    @field_validator("memories", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        return value

    @model_validator(mode="before")
    @classmethod
    def _published_draw(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("preset") == "paper" and data.get("stays") is None:
            return {**data, "stays": published.COHORT_PUBLISHED.stays_drawn}
        return data

    def identity(self) -> dict[str, Any]:
        """The settings that decide the bytes of a run, as JSON values."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in operational_names()}


def operational_names() -> frozenset[str]:
    """Names of the settings that change how a study runs but not its results."""
    fields = Settings.model_fields.items()
    return frozenset(name for name, field in fields if field.json_schema_extra == _OPERATIONAL)


def load_settings(file: Path | None = None, flags: Mapping[str, Any] | None = None, *, quick: bool = False) -> Settings:
    """Settings from flags, then ICU_MEMORY_* variables, then a TOML file, then (with ``quick``) the short study.

    Flags that are None count as not given.  Raises UsageProblem, one line, for an unreadable file, an unknown key or a
    value out of range; the value itself is not repeated.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    layers = [_read_toml(file) if file is not None else {}, QUICK if quick else {}]

    class _Layered(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix="ICU_MEMORY_", env_ignore_empty=True, extra="forbid", frozen=True)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return (init_settings, env_settings, *(InitSettingsSource(settings_cls, layer) for layer in layers))

    try:
        return Settings.model_validate(dict(_Layered(**given)))
    except ValidationError as failure:
        raise UsageProblem(_one_line(failure, file)) from None


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as failure:
        raise UsageProblem(f"settings file {file}: cannot be read ({failure.strerror}); check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise UsageProblem(f"settings file {file}: is not valid TOML; write lines such as: seed = 0") from None


def _one_line(failure: ValidationError, file: Path | None) -> str:
    problem = failure.errors(include_input=False, include_url=False)[0]
    name = ".".join(str(part) for part in problem["loc"]) or "?"
    where = f"flags, ICU_MEMORY_* variables or {file}" if file is not None else "flags or ICU_MEMORY_* variables"
    if problem["type"] == "extra_forbidden":
        return f"settings: unknown key {name!r} in {where}; known keys: {', '.join(Settings.model_fields)}"
    return f"settings: {name}: {problem['msg']}; correct it in {where}"
