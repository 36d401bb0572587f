"""The name that a channel is opened to says which life of the group it is for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import LogCorrupt
from dledger.store.disk import OsDisk
from dledger.store.generation_file import GenerationFile
from dledger.wire.generation import (
    channel_name,
    split_channel_name,
    superseded_reason,
    superseding_generation,
)

NAMES = st.text("abcXYZ019_-.", min_size=1, max_size=64)


@given(NAMES, st.integers(0, 999_999_999))
def test_group_and_generation_are_read_back_from_a_channels_name(
    group: str, generation: int
) -> None:
    assert split_channel_name(channel_name(group, generation)) == (group, generation)


def test_a_group_that_was_never_recovered_has_the_name_that_older_programs_know() -> None:
    assert channel_name("orders", 0) == "orders"


@given(st.text(max_size=80))
def test_any_text_is_some_group_and_generation(text: str) -> None:
    group, generation = split_channel_name(text)
    assert generation >= 0
    assert channel_name(group, generation) == text


def test_a_refusal_tells_which_generation_is_newer() -> None:
    assert superseding_generation(superseded_reason("g", 3, "n1", 2)) == 3
    assert superseding_generation("this is node n1, not n2") is None


def test_the_generation_of_a_folder_is_read_back(tmp_path: object) -> None:
    assert GenerationFile(OsDisk(), str(tmp_path)).generation == 0
    GenerationFile(OsDisk(), str(tmp_path)).set(2)
    GenerationFile(OsDisk(), str(tmp_path)).set(3)
    assert GenerationFile(OsDisk(), str(tmp_path)).generation == 3


def test_a_broken_generation_is_no_generation(tmp_path: object) -> None:
    with open(f"{tmp_path}/generation", "w") as file:
        file.write("rubbish")
    with pytest.raises(LogCorrupt, match="generation"):
        GenerationFile(OsDisk(), str(tmp_path))
