"""Making and replacing the keys of a site."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flows.errors import UsageProblem
from flows.run.registry import opened_site
from flows.settings import Settings
from flows.steps.site import settled
from flows.steps.verify import cannot_decide, site_keys
from reports.receipts.keys import ROLES, fingerprint


@dataclass(frozen=True)
class MadeKey:
    """A key that was made: its id, how people compare it, and the public file to hand out."""

    key_id: str
    fingerprint: str
    public_file: Path


def make_key(verb: Literal["new", "rotate"], role: str, settings: Settings) -> MadeKey:
    """Make the first key of a role, or replace it, in the state directory that the settings name.

    Raises UsageProblem where none is named or the role is unknown, FlowError where the site is in use.
    """
    known = [name for name in ROLES if name == role]
    if not known:
        raise UsageProblem(f"--role: is none of {', '.join(ROLES)}; correct it")
    if settings.state is None:
        raise UsageProblem("keys: no state directory; give --state-dir or set ICU_MEMORY_STATE")
    state = settings.state.expanduser().absolute()
    settled(settings)
    with opened_site(state) as site, site.lock(), cannot_decide():
        directory = site_keys(state)
        key_id = directory.new(known[0]) if verb == "new" else directory.rotate(known[0])
    return MadeKey(key_id, fingerprint(key_id), directory.path / f"{role}.pub.pem")
