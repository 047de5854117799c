"""Bad inputs, kept as text: tests/corpus/KIND.txt has groups under "# headings", an input on each line.

In an input, ⟪300×[⟫ stands for 300 times the text between × and ⟫, here 300 brackets.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "corpus"
KINDS = ("architectures", "compile", "fit", "grids", "options")
_REPEATED = re.compile("⟪([0-9]+)×(.*?)⟫")


def groups(kind: str) -> dict[str, list[str]]:
    """Return the bad inputs of one kind, as lists by the heading of their group."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in (FOLDER / f"{kind}.txt").read_text().splitlines():
        if line.startswith("# "):
            heading = line.removeprefix("# ")
        elif line:
            found.setdefault(heading, []).append(_written_out(line))
    return found


def inputs(kind: str) -> list[str]:
    return [text for group in groups(kind).values() for text in group]


def short(text: str) -> str:
    """Return the first 60 characters of an input, escaped, as the name of a test."""
    return text[:60].encode("unicode_escape").decode()


def _written_out(line: str) -> str:
    return _REPEATED.sub(lambda found: int(found[1]) * found[2], line)
