from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from flows.deployed import build_cohort_only, forget, named_settings, render, verify_target, work_on
from flows.errors import FlowError, UsageProblem
from flows.run.layout import RunLayout
from flows.run.locks import run_lock
from flows.run.requests import new_request, write_request
from flows.settings import Settings
from flows.steps import cohort, evaluate, stream, summarise
from flows.steps.keys import make_key

ROOT = Path(__file__).parents[2]
DEPLOYMENTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
DESCRIBE = """
import importlib, inspect, json, sys
from prefect import Flow
told = {}
for entrypoint in json.loads(sys.argv[1]):
    module, _, name = entrypoint.rpartition(".")
    flow = getattr(importlib.import_module(module), name)
    assert isinstance(flow, Flow) and not flow.persist_result and not flow.log_prints
    told[entrypoint] = [flow.name, list(inspect.signature(flow.fn).parameters)]
print(json.dumps(told))
"""


def steps(layout: RunLayout, settings: Settings, parts: Sequence[str]) -> None:
    """The parts as plain calls, without the orchestrator."""
    buckets = cohort.build(layout, settings)
    for bucket in buckets if "evaluate" in parts else ():
        evaluate.measure_bucket(layout, settings, bucket)
    if "stream" in parts:
        stream.prepare(layout, settings)
        for bucket in buckets:
            stream.stream_bucket(layout, settings, bucket)
    if "evaluate" in parts:
        summarise.summarise(layout, settings)


@pytest.fixture
def begun(source: Path, tmp_path: Path) -> RunLayout:
    settings = Settings.model_validate({"buckets": 2, "wards": 1, "memories": "vla", "recall_events": 0})
    build_cohort_only(str(source), str(tmp_path / "run"), settings, steps)
    return RunLayout(tmp_path / "run")


def test_prefect_yaml_names_the_deployments_their_pools_and_queues() -> None:
    pools = {item["name"]: item["work_pool"]["name"] for item in DEPLOYMENTS}
    assert {"study", "cohort", "stream", "evaluate", "forget", "report", "verify"} <= set(pools)
    assert {pool for name, pool in pools.items() if not name.endswith("-gpu")} == {"icu-cpu"}
    assert {pool for name, pool in pools.items() if name.endswith("-gpu")} == {"icu-gpu"}
    assert {item["work_pool"]["work_queue_name"] for item in DEPLOYMENTS} == {"studies", "deletions"}


def test_every_deployment_names_a_flow_of_its_name_that_takes_paths_and_opaque_names_only() -> None:
    entrypoints = json.dumps([item["entrypoint"] for item in DEPLOYMENTS])
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, entrypoints], capture_output=True, text=True, check=True, cwd=ROOT
    )
    told = json.loads(done.stdout.splitlines()[-1])
    allowed = {"source", "run", "settings", "target", "public_key", "since", "request"}
    for item in DEPLOYMENTS:
        name, parameters = told[item["entrypoint"]]
        assert name == item["name"].removesuffix("-gpu")
        assert set(parameters) <= allowed


def test_a_part_is_refused_before_what_it_is_made_from(begun: RunLayout) -> None:
    with pytest.raises(FlowError, match=r"2 of 2 buckets and wards are not streamed; run the deployment stream first"):
        work_on(str(begun.root), "evaluate", Settings(), steps)
    with pytest.raises(FlowError, match="not finished"):
        render(str(begun.root), Settings())
    with pytest.raises(FlowError, match="has no manifest"):
        work_on(str(begun.data_root / "elsewhere"), "stream", Settings(), steps)
    (begun.cohort / "stays.parquet").unlink()
    with pytest.raises(FlowError, match="its cohort is not built; run the deployment cohort first"):
        work_on(str(begun.root), "stream", Settings(), steps)


def test_the_parts_in_order_end_with_a_report_and_nothing_unpublished(begun: RunLayout) -> None:
    for part in ("stream", "evaluate"):
        work_on(str(begun.root), part, Settings(), steps)
    assert begun.generations.exists()
    assert render(str(begun.root), Settings()) == begun.report
    assert begun.report.exists()
    assert not begun.generations.exists()


def test_a_part_uses_the_settings_of_the_run_and_holds_its_lock(begun: RunLayout) -> None:
    seen: list[int] = []

    def work(layout: RunLayout, settings: Settings, parts: Sequence[str]) -> None:
        seen.append(settings.buckets)
        with pytest.raises(FlowError, match="another command is working in it"), run_lock(layout):
            pass

    work_on(str(begun.root), "stream", Settings(), work)
    assert seen == [2]
    with run_lock(begun), pytest.raises(FlowError, match="another command is working in it"):
        work_on(str(begun.root), "stream", Settings(), work)


def test_named_settings_refuse_an_unknown_key_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("subject = 482916000123\n", encoding="utf-8")
    with pytest.raises(UsageProblem) as refusal:
        named_settings(str(tmp_path / "bad.toml"))
    assert "482916" not in str(refusal.value)


def test_a_request_is_carried_out_by_its_file_and_again_by_its_id_without_doing_more(
    source: Path, tmp_path: Path
) -> None:
    site = Settings.model_validate({"state": tmp_path / "state"})
    settings = site.model_copy(update={"buckets": 2, "memories": ("vla",), "recall_events": 0})
    build_cohort_only(str(source), str(tmp_path / "run"), settings, steps)
    for part in ("stream", "evaluate"):
        work_on(str(tmp_path / "run"), part, site, steps)
    render(str(tmp_path / "run"), site)
    make_key("new", "operator", site)
    patient = pl.read_parquet(tmp_path / "run" / "cohort" / "stays.parquet")["subject_id"][0]
    asked = new_request("withdrawal-0001", "consent withdrawn", "patient", [patient], "patient", "steward", None, None)
    write_request(tmp_path / "request.json", asked)
    assert forget(str(tmp_path / "request.json"), site) == 1
    assert patient not in pl.read_parquet(tmp_path / "run" / "cohort" / "stays.parquet")["subject_id"].to_list()
    assert forget("withdrawal-0001", site) == 1
    assert verify_target(str(tmp_path / "run"), None, None, site) == 1
    with pytest.raises(FlowError, match="no such request"):
        forget("withdrawal-0002", site)
    with pytest.raises(FlowError, match="no state directory"):
        forget(str(tmp_path / "request.json"), Settings())
