"""Each row that is added to a table of groups goes to one segment and buffer, and none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from cerebro_plpy.packing.rows.dealing_groups import GroupDeal
from cerebro_plpy.packing.rows.placing import EVERYWHERE, LEAST_CUT, homes


def test_groups_that_have_rows_stay_and_new_ones_go_where_the_fewest_rows_are() -> None:
    assert homes([500, 100, 50, 60], 2, [0, 1]) == [0, 1, 1, 1]
    assert homes([10, 10, 5], 2, [1, 1]) == [1, 1, 0]
    assert homes([3 * LEAST_CUT, 10 * LEAST_CUT, 7], 2, [0]) == [0, EVERYWHERE, 1]


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_a_group_that_is_cut_is_dealt_on(before: int) -> None:
    """The group has `before` rows on all S segments; added row r goes to segment (before + r) mod S."""
    how = GroupDeal([4, 10, 3], [0, EVERYWHERE, 2], 3, 4, [9, before, 0], 7)
    ranks = np.arange(17)
    found = how.of_ranks(ranks)
    assert found[4:14].tolist() == [(before + r) % 3 for r in range(10)]
    dealt = {
        int(place): (segment, how.bounds(segment)[number] + at)
        for segment in range(3)
        for number, buffer in enumerate(how.slices(segment))
        for at, place in enumerate(buffer.places)
    }
    assert sorted(dealt) == ranks.tolist()
    segments, places = how.of_segments(ranks)
    assert [dealt[int(r)] for r in ranks] == list(zip(segments.tolist(), places.tolist(), strict=True))
    assert how.buffer_id(0, 0) == 7
    assert how.buffers_after == 7 + 3 * how.buffers
