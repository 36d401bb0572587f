"""Which groups hold broker names by a proof, and which did."""

from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from nameserver import limits
from nameserver.errors import NameHeld, TableFull

# How long a group's proof is required after its last broker has gone: until the next leader has
# registered.
PROOF_KEPT_S: Final = 10.0

# Groups that held a name before others: as many as may hold one. They are no more than 300 bytes.
MAX_FORMER: Final = limits.MAX_BROKERS


@dataclass(slots=True)
class _Holder:
    """A group that holds a name.

    Attributes:
        proof: what its members share.
        since: its first registration.
        last: its last one.
        until: when its proof is no more required.
    """

    proof: str
    since: float
    last: float
    until: float


@dataclass(slots=True)
class _Former:
    """A group that has held a name, and how many seconds in all."""

    proof: str
    held_s: float


class Holders:
    """By broker name; times are seconds on the caller's clock.

    While a group is away, another one may take its name: it may be its successor. But a stranger
    may, too. So the one that has held the name longer takes it back as soon as it returns.
    """

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}
        self._former: dict[str, _Former] = {}

    def __contains__(self, broker_name: str) -> bool:
        return broker_name in self._holders

    def check(self, broker_name: str, proof: str, now: float) -> None:
        """Refuse a registration that lacks the proof of the name's holder.

        Raises:
            NameHeld: another group holds the name, and has held it longer than this one.
            TableFull: too many names are held.
            RegistrationRefused: no such proof can be meant.
        """
        if proof:
            limits.check_text("groupProof", proof, limits.MAX_PROOF_CHARACTERS)
        held = self._holders.get(broker_name)
        if held is not None and now >= held.until:
            self._leave(broker_name)
            held = None
        if held is None:
            if proof and len(self._holders) >= limits.MAX_BROKERS:
                raise TableFull("proofs of groups", limits.MAX_BROKERS)
        elif not (_is_same(held.proof, proof) or self._returns(broker_name, proof, held)):
            raise NameHeld(broker_name, held.until - now)

    def is_new(self, broker_name: str, proof: str) -> bool:
        """Whether a registration that was checked takes the name from others."""
        held = self._holders.get(broker_name)
        return bool(proof) and (held is None or not _is_same(held.proof, proof))

    def hold(self, broker_name: str, proof: str, until: float, now: float) -> None:
        """A group has registered. Its proof is required until then, and some seconds longer."""
        if self.is_new(broker_name, proof):
            taken_from = self._leave(broker_name)
            former = self._former.get(broker_name)
            held_s = 0.0
            if former is not None and _is_same(former.proof, proof):
                held_s = former.held_s
                del self._former[broker_name]
                if taken_from is not None:
                    self._remember(broker_name, taken_from)
            self._holders[broker_name] = _Holder(proof, now - held_s, now, 0.0)
        held = self._holders[broker_name]
        held.last, held.until = now, until + PROOF_KEPT_S

    def has_gone(self, broker_name: str, now: float) -> None:
        """The last broker of a name has gone."""
        if (held := self._holders.get(broker_name)) is not None:
            held.until = min(held.until, now + PROOF_KEPT_S)

    def expire(self, now: float) -> None:
        """Require no more what is over."""
        for name in [name for name, held in self._holders.items() if held.until <= now]:
            self._leave(name)

    def _returns(self, broker_name: str, proof: str, held: _Holder) -> bool:
        """Whether the group with this proof has held the name longer than its present holder."""
        former = self._former.get(broker_name)
        if former is None or not _is_same(former.proof, proof):
            return False
        return former.held_s > held.last - held.since

    def _leave(self, broker_name: str) -> _Former | None:
        """The holder holds the name no more."""
        held = self._holders.pop(broker_name, None)
        if held is None:
            return None
        left = _Former(held.proof, held.last - held.since)
        former = self._former.get(broker_name)
        if former is None or former.held_s < left.held_s:
            self._remember(broker_name, left)
        return left

    def _remember(self, broker_name: str, left: _Former) -> None:
        """Remember who held a name; if there are too many, those who did so longest."""
        self._former[broker_name] = left
        if len(self._former) > MAX_FORMER:
            del self._former[min(self._former, key=lambda name: self._former[name].held_s)]


def _is_same(held: str, shown: str) -> bool:
    return compare_digest(held.encode(), shown.encode())
