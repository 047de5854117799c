"""Makes text that somebody else wrote safe for a terminal."""

from __future__ import annotations

import logging
import re

# What moves the cursor, paints, renames the window or turns the direction of reading; lines and tabs stay.
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: object) -> str:
    """Return the text with every command to the terminal spelled out: a name must not act on who reads it."""
    return _COMMANDS.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text))


class Harmless(logging.Formatter):
    """A log formatter that spells out commands to the terminal, also in the traces of errors."""

    def format(self, record: logging.LogRecord) -> str:
        return harmless(super().format(record))
