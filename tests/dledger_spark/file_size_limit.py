"""A disk that is full, as far as this process can tell."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """As good as a full disk: no write of this process goes beyond `size` bytes of a file.

    What Python compiles meanwhile, here or in a process that starts, is not kept: it would be left
    behind in part, and nothing could load the module again.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (
        patch.object(sys, "dont_write_bytecode", new=True),
        patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
