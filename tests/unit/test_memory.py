"""The memory of a process has one instance of each class, and a test can begin with an empty memory."""

from __future__ import annotations

from cerebro_plpy import memory


class Things(list[int]):
    """A class whose instance the memory keeps."""


def test_each_kind_is_made_once() -> None:
    own = memory.Memory()
    own.get_instance(Things).append(1)
    assert own.get_instance(Things) == [1]
    assert memory.Memory().get_instance(Things) == []


def test_a_fresh_memory_has_nothing_and_gives_everything_back() -> None:
    own = memory.Memory()
    own.get_instance(Things).append(1)
    with own.fresh():
        assert own.get_instance(Things) == []
        own.get_instance(Things).append(2)
    assert own.get_instance(Things) == [1]
