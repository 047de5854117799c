"""Messages to and from a segment's process arrive unchanged, in however many pieces they are sent."""

from __future__ import annotations

import pytest

from cerebro_plpy.cluster.protocol import ExpectBuffers
from cerebro_plpy.cluster.rows.loading import Load
from cerebro_plpy.errors import CerebroError
from cerebro_plpy.store.cluster import messages


@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 7], [900], [300, 300, 300, 300], [0, 600, 0, 600]])
def test_parts_arrive_as_they_were_sent(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PIECE_BYTES", 500)
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    pieces = list(messages.pack({"request": {"ä": 1}}, parts))
    assert [messages.is_whole(pieces[:n]) for n in range(1, len(pieces) + 1)] == [False] * (
        len(pieces) - 1
    ) + [True]
    head, found = messages.unpack(pieces)
    assert head == {"request": {"ä": 1}}
    assert list(map(bytes, found)) == parts


def load(in_memory: bool = True) -> Load:
    buffers = [[7, 2, 8], [9, 1, 4]]
    kinds = [None, "one-hot"]
    return Load(
        ExpectBuffers(
            ticket="one",
            role="r",
            table="t",
            segment=1,
            version=[1],
            buffers=buffers,
            kinds=kinds,
            in_memory=in_memory,
        )
    )


FIRST = (7, [[2, 1], [2, 2]], [bytes(8), bytes([1, 0, 0, 0, 0, 0, 1, 0])])
SECOND = (9, [[1, 1], [1, 2]], [b"\0\0\x80\x3f", bytes(4)])


def test_buffers_are_put_in_their_places_in_whatever_order_they_come() -> None:
    loading = load()
    loading.take(*SECOND)
    loading.take(*FIRST)
    loading.check()
    dataset = loading.dataset()
    assert dataset.inputs[0].tolist() == [[0.0], [0.0], [1.0]]
    assert dataset.targets[0].values.tolist() == [[1, 0], [0, 1], [0, 0]]


def test_rows_beyond_the_memory_stand_in_a_file_that_has_no_name(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("data")
    (folder / "base").mkdir()
    monkeypatch.chdir(folder)
    loading = load(in_memory=False)
    loading.take(*FIRST)
    loading.take(*SECOND)
    assert loading.dataset().inputs[0].tolist() == [[0.0], [0.0], [1.0]]
    assert list((folder / "base").iterdir()) == []


@pytest.mark.parametrize("buffers", [[FIRST], [FIRST, FIRST], [(8, *FIRST[1:])], [(9, *FIRST[1:])]])
def test_a_table_that_changes_while_it_is_read_is_told(buffers: list[tuple]) -> None:
    loading = load()
    with pytest.raises(CerebroError, match="has changed while it was read"):
        for buffer in buffers:
            loading.take(*buffer)
        loading.check()
