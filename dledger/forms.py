"""Derives the forms of an asynchronous API for programs that do not use trio.

Its methods are derived from those of the trio class:

    class BlockingLog(Form[RemoteLog]):
        append = waits(RemoteLog.append)

They have the same parameters, errors and docstrings. `dledger.asyncio_forms` does so for asyncio.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from dledger.loop_thread import LoopThread
from dledger.renamed import new_names_of, renamed_arguments

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Made = TypeVar("Made", bound=Callable[..., object])

Method = Callable[Concatenate[Any, P], R]


class Form(Generic[T]):
    """A trio object, for calls from other threads than that of its loop."""

    def __init__(self, loop: LoopThread[Any], inner: T) -> None:
        self._loop = loop
        self._inner = inner


def like(method: Callable[..., object]) -> Callable[[Made], Made]:
    """Give a derived method the name, the parameters and the docstring of its original."""

    def give(made: Made) -> Made:
        # Its attributes are not copied: one of them marks a coroutine function.
        update_wrapper(made, method, updated=())
        if names := new_names_of(method):  # so that a warning names the line of the caller
            return renamed_arguments(**names)(made)
        return made

    return give


def waits(method: Method[P, Awaitable[R]]) -> Method[P, R]:
    """Derive a blocking method from an asynchronous one."""

    @like(method)
    def call(form: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        loop: LoopThread[Any] = form._loop
        return loop.wait(partial(method, form._inner, *args, **kwargs))

    return call


def unchanging(value: T) -> T | tuple[Any, ...]:
    """Return the content of a list as it is now, and any other value itself."""
    return tuple(value) if isinstance(value, list) else value


def soon(method: Method[P, Awaitable[R]]) -> Method[P, Future[R]]:
    """Derive a method that begins an asynchronous one, and returns a future of its result.

    A list is taken as it is now: the loop looks at it later, when its user may have changed it.
    """

    @like(method)
    def call(form: Any, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        loop: LoopThread[Any] = form._loop
        now: Callable[..., Awaitable[R]] = method
        named = {name: unchanging(value) for name, value in kwargs.items()}
        return loop.submit(partial(now, form._inner, *map(unchanging, args), **named))

    return call


def at_once(method: Method[P, R]) -> Method[P, Awaitable[R]]:
    """Derive an asynchronous method that calls a plain trio method in the loop's thread."""

    @like(method)
    async def call(inner: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(inner, *args, **kwargs)

    return call


def iterates(method: Method[P, AsyncIterator[R]]) -> Method[P, Iterator[R]]:
    """Derive a method that returns a plain iterator. An interrupted wait loses no value."""

    @like(method)
    def call(form: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        loop: LoopThread[Any] = form._loop
        loop.check_waitable()
        return BlockingIterator(Coming(loop, partial(method, form._inner, *args, **kwargs)))

    return call


def opens(
    method: Method[P, AbstractAsyncContextManager[T]], form: Callable[[LoopThread[Any], T], R]
) -> Method[P, AbstractContextManager[R]]:
    """Derive a method that keeps a trio context manager open during a `with` block."""

    @like(method)
    @contextmanager
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        loop: LoopThread[Any] = self._loop
        with loop.kept_open(partial(method, self._inner, *args, **kwargs)) as opened:
            yield form(loop, opened)

    return call


def seen(attribute: Any) -> Any:
    """Derive a property that reads one of the trio object. The form names its type: `term: int`."""
    getter = attribute.fget

    def get(form: Any) -> Any:
        return getter(form._inner)

    return property(get, doc=getter.__doc__)


class Coming(Generic[R]):
    """The next value of an asynchronous iterator in the loop.

    The iterator is made for the first value. A value that came while its waiter was interrupted
    goes to the next waiter.
    """

    def __init__(self, loop: LoopThread[Any], make: Callable[[], AsyncIterator[R]]) -> None:
        self._loop = loop
        self._make = make
        self._values: AsyncIterator[R] | None = None
        self._next: Future[R] | None = None

    def next(self) -> Future[R]:
        """Return a future of the next value; the same one until `taken` is called."""
        self._loop.check_waitable()
        if self._next is None:
            self._next = self._loop.submit(self._come)
        return self._next

    def taken(self) -> None:
        self._next = None

    def failed(self, error: BaseException) -> None:
        """Note that the wait raised: the error is the iterator's own, or interrupted the waiter."""
        future = self._next
        if future is None or not future.done():
            return
        if future.cancelled() or future.exception() is error:
            self._next = None

    async def _come(self) -> R:
        if self._values is None:
            self._values = aiter(self._make())
        return await anext(self._values)


class BlockingIterator(Generic[R]):
    def __init__(self, coming: Coming[R]) -> None:
        self._coming = coming

    def __iter__(self) -> BlockingIterator[R]:
        return self

    def __next__(self) -> R:
        future = self._coming.next()
        try:
            value = future.result()
        except BaseException as error:
            self._coming.failed(error)
            if isinstance(error, StopAsyncIteration):
                raise StopIteration from None
            raise
        self._coming.taken()
        return value


def iterator_of(loop: LoopThread[Any], values: AsyncIterator[R]) -> BlockingIterator[R]:
    """Return a plain iterator over one of the loop's, for `opens`."""
    return BlockingIterator(Coming(loop, lambda: values))
