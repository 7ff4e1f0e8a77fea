"""Breaks the compiled memory on purpose, one rule at a time, and names the tests that notice.

    python tests/mutations.py [--out FILE]

Each mutation is applied to a copy of the checkout, built there, and run against the fast memory tests. A mutation that
no test notices makes the run fail.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["test_svdd_walk.py", "test_svdd_pruning.py", "test_svdd_operations.py", "test_svdd_examples.py"]


@dataclass(frozen=True)
class Mutation:
    """One rule taken away: in a file of the core, `old` becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation(
        "skip the null-direction exchange",
        "walk.c",
        "if (pivot > svdd_dependence(s)) return svdd_append(s, c, pivot);",
        "return svdd_append(s, c, pivot > 1e-300 ? pivot : 1e-300);",
    ),
    Mutation(
        "drop the freeze in the cold start",
        "walk.c",
        "if (i == c || s->frozen[i]) continue;",
        "if (i == c) continue;",
    ),
    Mutation(
        "ignore the margin-empty branch",
        "walk.c",
        "status = move_rho(s, c, direction, stop_at_kkt, &done);",
        "return SVDD_STUCK;",
    ),
    Mutation(
        "accept a zero step back into the margin",
        "walk.c",
        "if (step <= nothing && s->left_at[i] == s->stamp) continue;",
        "",
    ),
    Mutation(
        "skip the recall of cold keys on deletion",
        "memory.c",
        "int status = recall(s, hot);",
        "int status = SVDD_OK;",
    ),
    Mutation(
        "never look at cold keys whose expiry has passed",
        "memory.c",
        "s->cold_expiry[0] <= clock_now(s)",
        "s->cold_expiry[0] < -INFINITY",
    ),
    Mutation(
        "leave rho where the last member put it when the margin empties",
        "upkeep.c",
        "if (s->m == 0) take_upper_rho(s);",
        "",
    ),
    Mutation(
        "take an integer 1/C as the float that was given",
        "store.c",
        "fabs(1.0 / C - whole) <= 1e-12 * whole ? whole : 1.0 / C",
        "1.0 / C",
    ),
    Mutation("plain exponential instead of the shifted kernel", "kernel.c", "expm1(-distance * s->inv_s2)", "exp(-distance * s->inv_s2) - 1.0"),
    Mutation("give each copy of a key a location of its own", "memory.c", "return c >= 0 ? c : svdd_add_location(s, key);", "return svdd_add_location(s, key);"),
    Mutation("keep a deleted token's cap", "memory.c", "  s->mult[c]--;\n  set_cap(s, c);\n  if (s->a[c]", "  s->mult[c]--;\n  if (s->a[c]"),
]  # fmt: skip


def broken_copy(mutation: Mutation, target: Path) -> None:
    """A built copy of the tracked files under target, with the mutation applied."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    source = target / "memory/svdd/core" / mutation.file
    text = source.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(
            f"error: mutations: {mutation.name}: its text occurs {text.count(mutation.old)} times; update it"
        )
    source.write_text(text.replace(mutation.old, mutation.new))
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=target, check=True, capture_output=True
    )


def failing_tests(copy: Path) -> list[str]:
    """Names of the tests that fail or hang in a copy, in order."""
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-rf", "-p", "no:cacheprovider", "--tb=no"]
    command += [f"tests/memory/{name}" for name in TESTS]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    try:
        run = subprocess.run(
            command, cwd=copy, capture_output=True, text=True, timeout=300, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return ["(the tests did not end)"]
    failed = re.findall(r"^FAILED \S+::(\w+)", run.stdout, re.MULTILINE)
    return sorted(set(failed)) or (["(the tests crashed)"] if run.returncode not in (0, 1) else [])


def measure(mutation: Mutation) -> dict[str, object]:
    """Apply one mutation and say which tests notice."""
    with tempfile.TemporaryDirectory() as folder:
        broken_copy(mutation, Path(folder))
        failed = failing_tests(Path(folder))
    print(f"{mutation.name}: {', '.join(failed) or 'NOT NOTICED'}", file=sys.stderr)
    return {"mutation": mutation.name, "file": f"memory/svdd/core/{mutation.file}", "failing_tests": failed}


def main() -> int:
    """Run every mutation; 1 where one goes unnoticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table as JSON")
    parser.add_argument("--only", help="run the mutations whose name contains this")
    arguments = parser.parse_args()
    rows = [measure(mutation) for mutation in MUTATIONS if (arguments.only or "") in mutation.name]
    if arguments.out:
        arguments.out.write_text(json.dumps({"schema_version": 1, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["failing_tests"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
