"""The error type of the extension, the SQLSTATEs that it uses, and conversions to it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

INVALID_PARAMETER = "22023"
UNDEFINED_TABLE = "42P01"
UNDEFINED_SCHEMA = "3F000"
UNDEFINED_COLUMN = "42703"
DUPLICATE_COLUMN = "42701"
DUPLICATE_TABLE = "42P07"
DUPLICATE_OBJECT = "42710"
UNIQUE_VIOLATION = "23505"
UNDEFINED_OBJECT = "42704"
DATATYPE_MISMATCH = "42804"
UNDEFINED_FUNCTION = "42883"
NULL_NOT_ALLOWED = "22004"
OUT_OF_RANGE = "22003"
TIME_OUT_OF_RANGE = "22008"
INSUFFICIENT_PRIVILEGE = "42501"
WRONG_STATE = "55000"
LOCK_NOT_AVAILABLE = "55P03"
WRONG_OBJECT = "42809"
DEPENDENT_OBJECTS = "2BP01"
NOT_SUPPORTED = "0A000"
READ_ONLY_TRANSACTION = "25006"
DATA_CORRUPTED = "XX001"
PROGRAM_LIMIT_EXCEEDED = "54000"
DISK_FULL = "53100"
OUT_OF_MEMORY = "53200"
QUERY_CANCELED = "57014"
ADMIN_SHUTDOWN = "57P01"
IO_ERROR = "58030"
CONNECTION_FAILURE = "08006"
TOO_MANY_CONNECTIONS = "53300"
# Greenplum's own: it has lost a process of the session on a segment.
SEGMENT_GONE = "58M01"
SEGMENT_GONE_HINT = "Try again when all segments answer. A run goes on with cerebro.resume."
# A config has failed; its run goes on without it.
CONFIG_FAILED = "CB001"
INTERNAL = "XX000"


class CerebroError(Exception):
    """The error that the package raises; the functions in `entry.py` turn it into an error of the server."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sqlstate: str = INVALID_PARAMETER,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sqlstate = sqlstate

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the constructor, to make an equal error in another process."""
        return {name: getattr(self, name) for name in ("message", "detail", "hint", "sqlstate")}


def from_driver(error: Any, unknown: str) -> CerebroError:
    """Convert a psycopg2 error to a CerebroError, with the SQLSTATE `unknown` if psycopg2 gives none."""
    said = error.diag
    message = said.message_primary or " ".join(str(error).split()) or "the connection was lost"
    sqlstate = error.pgcode or unknown
    return CerebroError(
        message.removeprefix("cerebro: "),
        detail=said.message_detail,
        hint=said.message_hint or _hint(sqlstate),
        sqlstate=sqlstate,
    )


# The server's own constraints by which two sessions that make the same table collide.
_NAMES_OF_TABLES = ("pg_class_relname_nsp_index", "pg_type_typname_nsp_index")


def from_statement(error: Any) -> CerebroError:
    """Convert a `plpy.SPIError`, the server's error for a statement of this session, to a CerebroError."""
    packed, detail, hint, *others = error.spidata or (None, None, None)
    # If the server does not know the code, as of some users' functions, the error has no `sqlstate`.
    sqlstate = getattr(error, "sqlstate", None) or _unpacked(packed)
    if sqlstate == UNIQUE_VIOLATION and others and others[-1] in _NAMES_OF_TABLES:
        return CerebroError(
            "another session has made a table of the same name meanwhile",
            detail=detail,
            hint="Give another name, or drop the other table.",
            sqlstate=DUPLICATE_TABLE,
        )
    return CerebroError(str(error), detail=detail, hint=hint or _hint(sqlstate), sqlstate=sqlstate)


def _hint(sqlstate: str) -> str | None:
    """Return the extension's hint for an SQLSTATE of the server, or None."""
    return SEGMENT_GONE_HINT if sqlstate == SEGMENT_GONE else None


def _unpacked(packed: int | None) -> str:
    """Return an SQLSTATE as text from the server's number, which has six bits for each character."""
    if packed is None:
        return INTERNAL
    return "".join(chr((packed >> 6 * place & 0x3F) + ord("0")) for place in range(5))


def printable(text: str) -> str:
    """Return a text with NUL and lone surrogates escaped, since the server cannot send these."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def missing_package(module: str) -> CerebroError:
    """Return the error for a call that needs the module of an engine that is not installed on the server."""
    package = "tensorflow-cpu" if module == "tensorflow" else module
    return CerebroError(
        f'the Python package "{module}" is missing on the server',
        detail=f"Python {sys.version.split()[0]} looked in: {', '.join(filter(None, sys.path))}.",
        hint=f"Install it where the server's Python finds it: pip install {package}.",
        sqlstate=NOT_SUPPORTED,
    )
