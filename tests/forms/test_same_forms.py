"""What the trio form of an object has, its blocking and its asyncio form have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.bare_call import bare
from tests.forms.form_classes import FORMS, TRIO_ALONE, public

# Parameters that a form has in another way: `read` takes what to look at, and a wait of a thread
# may have a limit.
MORE = {"look", "timeout_s"}


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_each_form_has_the_methods_and_parameters_of_the_trio_class(
    trio_form: type, plain: type, in_asyncio: type
) -> None:
    for name, member in public(trio_form).items():
        if (trio_form.__name__, name) in TRIO_ALONE:
            continue
        for form in (plain, in_asyncio):
            mine = public(form).get(name)
            assert mine is not None, f"{form.__name__} lacks {name}"
            if isinstance(member, property):
                assert isinstance(mine, property), f"{form.__name__}.{name}"
                continue
            assert without_more(mine) == without_more(member), f"{form.__name__}.{name}"


def without_more(method: Callable[..., object]) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(method).parameters
    return [
        (one.name, one.kind, one.default)
        for one in list(parameters.values())[1:]
        if one.name not in MORE
    ]


def test_what_belongs_to_trio_alone_is_there() -> None:
    known = {(trio_form.__name__, name) for trio_form, _, _ in FORMS for name in public(trio_form)}
    assert set(TRIO_ALONE) <= known


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_what_one_bridge_has_the_other_has(trio_form: type, plain: type, in_asyncio: type) -> None:
    # A coroutine needs no future beside it, and is no wait of a thread.
    mine = {name for name in public(plain) if not name.endswith("_soon")}
    assert mine == set(public(in_asyncio))


@pytest.mark.parametrize(("trio_form", "plain", "in_asyncio"), FORMS)
def test_calls_of_asyncio_are_coroutines_and_plain_ones_are_not(
    trio_form: type, plain: type, in_asyncio: type
) -> None:
    for name, member in public(trio_form).items():
        if inspect.iscoroutinefunction(bare(member)) and name in public(in_asyncio):
            assert inspect.iscoroutinefunction(bare(public(in_asyncio)[name])), name
            assert not inspect.iscoroutinefunction(bare(public(plain)[name])), name
