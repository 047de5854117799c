"""SQL literals in the statements that a NOTICE shows: each literal evaluates to the original value."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cerebro_plpy.store import dialect
from trial import Trial

# Strings that end, open or escape a literal, and some harmless ones.
HOSTILE = [
    "$",
    "$$",
    "'",
    "\\",
    "$a$",
    "a$",
    "'$",
    "\\'",
    "E'",
    '"',
    "%",
    "%s",
    "{}",
    "--",
    "/*",
    "\n",
    "ä",
    "\u202e",
]
TEXTS = st.lists(st.sampled_from([*HOSTILE, "a", " ", "1"]), max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20
)


@pytest.mark.parametrize("conforming", ["on", "off"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_a_text_comes_to_what_it_was(trial: Trial, conforming: str, texts: list[str]) -> None:
    trial.sql(f"SET standard_conforming_strings = {conforming}")
    try:
        query = f"SELECT {', '.join(map(dialect.literal, texts))}, {dialect.literal(texts)}"
        with trial.connection.cursor() as cursor:
            cursor.execute(query)
            assert cursor.fetchone() == (*texts, texts)
    finally:
        trial.sql("RESET standard_conforming_strings")


def test_values_are_as_short_as_they_can_be() -> None:
    assert dialect.literal("a 'b' c") == "$$a 'b' c$$"
    assert dialect.literal("a 'b' $") == "'a ''b'' $'"
    assert dialect.literal([1, 2]) == "ARRAY[1, 2]"
    assert dialect.literal(0.5) == "0.5"
