"""The groups that hold broker names by a proof, and those that held them before."""

from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from nameserver import limits
from nameserver.errors import NameHeld, TableFull

# A group's proof stays required for this time after its last broker has gone, so that the next
# leader can register.
PROOF_KEPT_S: Final = 10.0

# The most former holders: as many as there are holders. Each takes at most 300 bytes.
MAX_FORMER: Final = limits.MAX_BROKERS


@dataclass(slots=True)
class _Holder:
    """A group that holds a name.

    Attributes:
        proof: the shared proof of its members.
        since: its first registration.
        last: its last one.
        until: when its proof is no longer required.
    """

    proof: str
    since: float
    last: float
    until: float


@dataclass(slots=True)
class _Former:
    """A group that held a name before, and for how many seconds."""

    proof: str
    held_s: float


class Holders:
    """The holders by broker name; times are seconds on the caller's clock.

    While a group is away, another one may take its name, such as its successor. But a stranger may
    take it, too. So the group that has held the name longer takes it back when it returns.
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
            RegistrationRefused: the proof is too long or unprintable.
        """
        if proof:
            limits.check_text("groupProof", proof, limits.MAX_PROOF_CHARACTERS)
        held = self._holders.get(broker_name)
        if held is not None and now >= held.until:
            self._drop(broker_name)
            held = None
        if held is None:
            if proof and len(self._holders) >= limits.MAX_BROKERS:
                raise TableFull("proofs of groups", limits.MAX_BROKERS)
        elif not (_is_same(held.proof, proof) or self._was_here_longer(broker_name, proof, held)):
            raise NameHeld(broker_name, held.until - now)

    def is_new(self, broker_name: str, proof: str) -> bool:
        """Return whether a checked registration takes the name from others."""
        held = self._holders.get(broker_name)
        return bool(proof) and (held is None or not _is_same(held.proof, proof))

    def hold(self, broker_name: str, proof: str, until: float, now: float) -> None:
        """Note a registration. The proof stays required until then, and PROOF_KEPT_S
        longer.
        """
        if self.is_new(broker_name, proof):
            taken_from = self._drop(broker_name)
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
        """Note that the last broker of a name has gone."""
        if (held := self._holders.get(broker_name)) is not None:
            held.until = min(held.until, now + PROOF_KEPT_S)

    def expire(self, now: float) -> None:
        """Drop holders whose time is over."""
        for name in [name for name, held in self._holders.items() if held.until <= now]:
            self._drop(name)

    def _was_here_longer(self, broker_name: str, proof: str, held: _Holder) -> bool:
        """Return whether the group with this proof has held the name longer than its present
        holder.
        """
        former = self._former.get(broker_name)
        if former is None or not _is_same(former.proof, proof):
            return False
        return former.held_s > held.last - held.since

    def _drop(self, broker_name: str) -> _Former | None:
        """Drop the holder of a name; remember and return it as a former one."""
        held = self._holders.pop(broker_name, None)
        if held is None:
            return None
        left = _Former(held.proof, held.last - held.since)
        former = self._former.get(broker_name)
        if former is None or former.held_s < left.held_s:
            self._remember(broker_name, left)
        return left

    def _remember(self, broker_name: str, left: _Former) -> None:
        """Remember a former holder; with too many, keep those that held a name longest."""
        self._former[broker_name] = left
        if len(self._former) > MAX_FORMER:
            del self._former[min(self._former, key=lambda name: self._former[name].held_s)]


def _is_same(held: str, shown: str) -> bool:
    return compare_digest(held.encode(), shown.encode())
