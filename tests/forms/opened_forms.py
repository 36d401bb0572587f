"""An object of each class, opened in one form on real servers."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import dledger
import dledger_mq
from dledger import blocking, for_asyncio
from dledger.free_ports import free_ports
from dledger.loop_thread import LoopThread
from dledger_mq import Admin, PopConsumer, Producer, PullConsumer, PushConsumer
from dledger_mq import blocking as mq_blocking
from dledger_mq import for_asyncio as mq_for_asyncio
from dledger_mq.message import TransactionState
from tests.bare_call import bare
from tests.forms.call_arguments import CALL_S, arguments
from tests.forms.carrying_out import AsyncioThread, finish, finish_soon, in_thread
from tests.forms.form_classes import ASYNCIO, BLOCKING, FORMS, TRIO, Forms, calls_of
from tests.forms.real_servers import TOPIC, Servers, machine, node_config

Objects = dict[str, Any]
Opening = Callable[[SimpleNamespace, Servers, Objects, str], Any]


async def _check(_message: object) -> TransactionState:
    return TransactionState.UNKNOWN


async def _listen(_messages: object) -> None:
    pass


def _node(form: SimpleNamespace, servers: Servers, _have: Objects, mark: str) -> Any:
    return form.open_node(node_config(servers.folder / f"node-{mark}"), machine())


def _host(form: SimpleNamespace, _servers: Servers, _have: Objects, _mark: str) -> Any:
    return form.open_host(dledger.HostConfig(address=f"127.0.0.1:{free_ports(1)[0]}"))


def _producer(form: SimpleNamespace, servers: Servers, _have: Objects, _mark: str) -> Any:
    return form.open_producer(Producer("writers", nameservers=servers.names, check=_check))


def _push(form: SimpleNamespace, servers: Servers, _have: Objects, mark: str) -> Any:
    consumer = PushConsumer(f"push-{mark}", TOPIC, nameservers=servers.names)
    return form.open_push_consumer(consumer)


def _pop(form: SimpleNamespace, servers: Servers, _have: Objects, mark: str) -> Any:
    consumer = PopConsumer(f"pop-{mark}", TOPIC, _listen, nameservers=servers.names)
    return form.open_pop_consumer(consumer)


# How each is opened, in this order. A name has the class, and what it was opened by if that is no
# function.
OPENINGS: Final[dict[str, Opening]] = {
    "Node": _node,
    "Session": lambda _form, _servers, have, _mark: have["Node"].session(),
    "RemoteLog": lambda form, servers, _have, _mark: form.connect(
        servers.peers, group="g", timeout_s=CALL_S
    ),
    "Session of RemoteLog": lambda _form, _servers, have, _mark: have["RemoteLog"].session(),
    "GroupClient": lambda form, servers, _have, _mark: form.open_group("g", servers.peers),
    "Host": _host,
    "Producer": _producer,
    "Transaction": lambda _form, _servers, have, _mark: have["Producer"].transaction(
        dledger_mq.Message(TOPIC, b"half")
    ),
    "PullConsumer": lambda form, servers, _have, _mark: form.open_pull_consumer(
        PullConsumer("readers", nameservers=servers.names)
    ),
    "PushConsumer": _push,
    "PopConsumer": _pop,
    "Admin": lambda form, servers, _have, _mark: form.open_admin(Admin(nameservers=servers.names)),
    "ConsumerGroup": lambda _form, _servers, have, _mark: nullcontext(
        have["Admin"].group("readers")
    ),
}


def _of_trio(name: str) -> Callable[..., Any]:
    return lambda made: made


LOCAL: Final = {"Node", "Session", "Host"}


# What opens the objects in each form.
MODULES: Final = {
    TRIO: SimpleNamespace(
        open_node=dledger.open_node,
        open_host=dledger.open_host,
        connect=dledger.connect,
        open_group=lambda *given: nullcontext(dledger.GroupClient(*given)),
        **{name: _of_trio(name) for name in vars(mq_blocking) if name.startswith("open_")},
    ),
    BLOCKING: SimpleNamespace(**vars(mq_blocking) | vars(blocking)),
    ASYNCIO: SimpleNamespace(**vars(mq_for_asyncio) | vars(for_asyncio)),
}


class Call(NamedTuple):
    """One public call of an object, with its arguments.

    Attributes:
        of: the object's name in OPENINGS.
        name: of the call.
        forms: the class.
        make: makes the call anew; what it gives may have to be awaited, entered or iterated over.
        object: the object.
    """

    of: str
    name: str
    forms: Forms
    make: Callable[[], Any]
    object: Any

    def __str__(self) -> str:
        return f"{self.of}.{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether it is answered in this process: by a member that runs here."""
        return self.of in LOCAL

    @property
    def waits_on_purpose(self) -> bool:
        """Whether it waits for as long as nothing comes, and its block is open."""
        return self.name in ("__iter__", "__aiter__", "ready", "tail", "watch")

    @property
    def needs_task(self) -> bool:
        """Whether it has to be awaited, or gives what has to be."""
        member = inspect.getattr_static(type(self.object), self.name, None)
        if member is None or isinstance(member, property):
            return False
        told = inspect.signature(member).return_annotation
        return inspect.iscoroutinefunction(bare(member)) or "Async" in str(told)


class OpenedForm:
    """The objects of one form.

    Attributes:
        form: which.
        objects: by their names in OPENINGS.
        ends: ends their blocks.
        thread: the loop in which objects of trio and asyncio are open.
    """

    def __init__(
        self,
        form: str,
        servers: Servers,
        objects: Objects,
        ends: ExitStack,
        thread: LoopThread[Any] | AsyncioThread | None = None,
    ) -> None:
        self.form = form
        self.servers = servers
        self.objects = objects
        self.ends = ends
        self.thread = thread

    def begin(self, make: Callable[[], Any], values: int = 1) -> Future[None]:
        """Make a call where its form is called: in a thread of its own, or in the loop."""
        if self.thread is None:
            return in_thread(partial(finish, make, values))
        return self.thread.submit(partial(finish_soon, make, values))

    def run(self, work: Callable[[], Any]) -> Future[Any]:
        """Run a coroutine function in the loop in which the objects are open."""
        assert self.thread is not None
        return self.thread.submit(work)

    def loop_of(self, call: Call) -> LoopThread[Any] | None:
        """The loop of trio's that carries a call out; None if it needs none."""
        if self.form == TRIO:
            assert isinstance(self.thread, LoopThread)
            return self.thread
        loop = getattr(call.object, "_loop", None)
        return loop if isinstance(loop, LoopThread) else None

    def calls(self, *, waiting: bool = False) -> Iterator[Call]:
        """Every public call of every object, and each property."""
        for of, opened in self.objects.items():
            (forms,) = (one for one in FORMS if one.trio.__name__ == of.partition(" ")[0])
            for name in calls_of(forms, self.form):
                if isinstance(inspect.getattr_static(opened, name, None), property):
                    make: Callable[[], Any] = partial(getattr, opened, name)
                else:
                    make = arguments(forms, opened, name, self.servers, waiting=waiting)
                yield Call(of, name, forms, make, opened)

    @property
    def loops(self) -> list[LoopThread[Any]]:
        """The loops of the objects."""
        own = [getattr(opened, "_loop", None) for opened in self.objects.values()]
        return list({id(loop): loop for loop in own if isinstance(loop, LoopThread)}.values())


@contextmanager
def opened(form: str, servers: Servers, mark: str) -> Iterator[OpenedForm]:
    """Open an object of each class. `mark` is like no other of the same servers."""
    with ExitStack() as stack:
        if form == BLOCKING:
            ends = stack.enter_context(ExitStack())
            yield OpenedForm(form, servers, _opened_plainly(ends, servers, mark), ends)
            return
        thread: LoopThread[None] | AsyncioThread
        if form == TRIO:
            thread = LoopThread(nullcontext, "trio form")
            thread.open()
            stack.callback(thread.close)
        else:
            thread = stack.enter_context(AsyncioThread())
        ends = stack.enter_context(ExitStack())
        objects = ends.enter_context(thread.kept_open(lambda: _opened(form, servers, mark)))
        yield OpenedForm(form, servers, objects, ends, thread)


def _opened_plainly(ends: ExitStack, servers: Servers, mark: str) -> Objects:
    objects: Objects = {}
    for name, opening in OPENINGS.items():
        objects[name] = ends.enter_context(opening(MODULES[BLOCKING], servers, objects, mark))
        if name == "Node":
            objects[name].read(lambda: None)
    return objects


@asynccontextmanager
async def _opened(form: str, servers: Servers, mark: str) -> AsyncIterator[Objects]:
    async with AsyncExitStack() as stack:
        objects: Objects = {}
        for name, opening in OPENINGS.items():
            made = opening(MODULES[form], servers, objects, mark)
            objects[name] = await stack.enter_async_context(made)
            if name == "Node":
                await objects[name].read(*(() if form == TRIO else (lambda: None,)))
        yield objects
