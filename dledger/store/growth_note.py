"""The note that a group has grown beyond its first voters, outside of the data folder.

A member whose data folder is emptied, or whose disk is another one, finds it and does not begin the
group anew (`dledger.core.admission.beginning`). It is in two places, because either may be lost
with the disk: beside the data folder, and in the state folder of the user. Its name is made of the
group, the node and the absolute path of the data folder, so groups in other folders never find it.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import NamedTuple

from dledger.core.membership.change_errors import GrowthNotNoted
from dledger.store.disk import Disk
from dledger.store.small_file import remove_small_file, write_small_file

_SUM_CHARACTERS = 16

# A file system takes names of 255 bytes, and the file is written under a name that ends in .new.
_MOST_NAME_BYTES = 251


class NotedMember(NamedTuple):
    """The member that a note is about.

    Attributes:
        group, node_id: its names.
        data_dir: the absolute path of the folder that its node's folder is in.
    """

    group: str
    node_id: str
    data_dir: str


class GrowthNote:
    """The note of one member, in each of its places.

    Args:
        disk: where the folders are.
        member: the subject of the note.
        state_folder: of the user; None if there is none.
    """

    def __init__(self, disk: Disk, member: NotedMember, state_folder: str | None) -> None:
        self._disk = disk
        self._member = member
        beside = os.path.dirname(member.data_dir)
        self._folders = [beside, *([] if state_folder is None else [state_folder])]

    @property
    def paths(self) -> list[str]:
        """The paths of its files, whether they exist or not."""
        return [f"{folder.rstrip('/')}/{self._name}" for folder in self._folders]

    @property
    def _name(self) -> str:
        group, node_id, _ = self._member
        # A path is any bytes, and Python holds those that are no text as surrogates.
        member = "\0".join(self._member).encode("utf-8", "surrogateescape")
        summed = sha256(member).hexdigest()[:_SUM_CHARACTERS]
        # Hidden, because commands take files named dledger-... for folders of nodes.
        shown = f"{group}-{node_id}"
        name = f".dledger-has-grown-{shown}-{summed}"
        if (excess := len(name.encode()) - _MOST_NAME_BYTES) <= 0:
            return name
        # The sum tells members apart whose names are cut.
        kept = shown.encode()[:-excess].decode("utf-8", "ignore")
        return f".dledger-has-grown-{kept}-{summed}"

    def found(self) -> str | None:
        """Return the path of an existing file of the note; None if there is none."""
        return next(filter(self._is_there, self.paths), None)

    def _is_there(self, path: str) -> bool:
        try:
            self._disk.open(path, writable=False).close()
        except OSError:
            return False  # this user cannot have written it either
        return True

    def write(self) -> list[str]:
        """Write the note in every place; return the problems of the places where it cannot be
        written.

        Durable on return. Raises GrowthNotNoted if it cannot be written anywhere.
        """
        problems = []
        for folder in self._folders:
            try:
                self._disk.make_folder(folder)
                write_small_file(self._disk, folder, self._name, self._content)
            except OSError as error:
                problems.append(f"{folder}: {error.strerror or error}")
        if len(problems) == len(self._folders):
            raise GrowthNotNoted(problems)
        return problems

    def mend(self) -> list[str]:
        """Write the note again if it is missing in a place; return the problems there.

        A lost disk took one of the two files with it, and the next loss would take the other.
        """
        if all(map(self._is_there, self.paths)):
            return []
        try:
            return self.write()
        except GrowthNotNoted as error:
            return list(error.problems)

    def remove(self) -> None:
        """Remove the note from every place; durable on return. Raises OSError."""
        for folder, path in zip(self._folders, self.paths, strict=True):
            if self._is_there(path):
                remove_small_file(self._disk, folder, self._name)

    @property
    def _content(self) -> bytes:
        group, node_id, data_dir = self._member
        return (
            f"Group {group} has members besides the first voters that {node_id} with the data "
            f"folder {data_dir} was started with.\nWhile this file is here, {node_id} does not "
            "begin the group anew if that folder is empty. Started with --new it removes the "
            "file: only if no other member has the group's data.\n"
        ).encode("utf-8", "surrogateescape")
