"""The members of a run whose calls can be made to do something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jepsen_like.chaos.inside.library import VARIABLE, built_library
from jepsen_like.chaos.inside.steering import Steering

STEERING_VARIABLE: Final = "JEPSEN_LIKE_STEERING"


class Insides:
    """The library, and the steering of each member that has it.

    Args:
        folder: of the library and the files of steering; it is made.
        preloaded: the libraries that members load first anyway, as LD_PRELOAD has them.

    Raises:
        LibraryMissing: the library cannot be built or used here.
    """

    def __init__(self, folder: Path, preloaded: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        libraries = [str(built_library(folder)), preloaded]
        self._preload = ":".join(filter(None, libraries))
        self._steerings: dict[str, Steering] = {}

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """What starts a member so that it can be steered."""
        if name not in self._steerings:
            self._steerings[name] = Steering(self._folder / f"{name}.steering")
        variables = {
            VARIABLE: self._preload,
            STEERING_VARIABLE: str(self._steerings[name].path),
        }
        return ["env", *(f"{key}={value}" for key, value in variables.items()), *command]

    @property
    def steerings(self) -> Mapping[str, Steering]:
        """The steering of each member, by its name."""
        return self._steerings

    def close(self) -> None:
        """Close the steerings."""
        for steering in self._steerings.values():
            steering.close()
