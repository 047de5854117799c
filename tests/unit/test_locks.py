"""The lock files contain the packages that pyproject.toml asks for, each in one version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUPS: dict[str, list[Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]


def lock_of(group: str) -> Path:
    return ROOT / ("requirements.lock" if group == "server" else f"requirements/{group}.lock")


def locked(group: str) -> dict[str, set[str]]:
    """Return the versions of each package in a lock file, which may differ between kinds of machines."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([a-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;]+)", lock_of(group).read_text(), re.M
    ):
        found.setdefault(name, set()).add(version)
    return found


def asked(group: str) -> Iterator[str]:
    for one in GROUPS[group]:
        if isinstance(one, str):
            yield re.split(r"[^\w.-]", one)[0]
        else:
            yield from asked(one["include-group"])


@pytest.mark.parametrize("group", GROUPS)
def test_a_lock_names_its_group_for_what_the_group_asks_for(group: str) -> None:
    text = lock_of(group).read_text()
    packages = re.split(r"^(?=[a-z0-9])", text, flags=re.M)
    wanted = {re.split(r"[=\[]", package)[0] for package in packages if "pyproject.toml:" in package}
    assert wanted == set(asked(group))


# What is not installed beside the others: another machine's, and a peer that needs old packages.
APART = ("server", "gpu", "features")


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in APART])
def test_what_stands_in_two_locks_has_one_version(group: str) -> None:
    server = locked("server")
    assert {
        name: versions for name, versions in locked(group).items() if server.get(name, versions) != versions
    } == {}
