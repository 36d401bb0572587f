"""`python -m jepsen_like.chaos.shown_certificates HOST:PORT...`: what each server shows, as JSON.

Servers that do not answer are left out.
"""

from __future__ import annotations

import json
import ssl
import sys
from contextlib import suppress

from remoting.net.address import parse_address

TIMEOUT_S = 3.0


def main() -> None:
    found = {}
    for text in sys.argv[1:]:
        address = parse_address(text)
        with suppress(OSError):
            shown = ssl.get_server_certificate((address.host, address.port), timeout=TIMEOUT_S)
            found[text] = shown.strip()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
