"""Makes text from other people safe to print on a terminal."""

from __future__ import annotations

import logging
import re

# Characters that control the terminal or the direction of reading, except line feeds and tabs.
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: object) -> str:
    """Return the text with control characters spelled out, so that it cannot send commands to a terminal."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


class Harmless(logging.Formatter):
    """A log formatter that spells out control characters in messages and tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))
