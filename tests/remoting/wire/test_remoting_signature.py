"""Signatures of RocketMQ 4's clients, against those that real ones have sent."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from remoting.wire import signature as signature_module
from remoting.wire.command import Command
from remoting.wire.signature import Credentials, Signer


def test_the_values_are_signed_in_the_order_of_their_names_and_then_the_body() -> None:
    fields = {"topic": "TopicTest", "queueId": "0", "AccessKey": "AK"}
    assert Signer(b"SK").signature(fields, b"hello") == "qoKyP85xbSe/67jQdBOekolxpBY="


def test_the_signature_of_a_client_without_credentials_is_one_by_an_empty_secret() -> None:
    # As the C++ client sends it.
    fields = {"AccessKey": "", "OnsChannel": "ALIYUN", "topic": "TopicTest"}
    assert Signer(b"").signature(fields, b"") == "N/YT7X6tJe5UfutmW+uNwTTJ7Fc="


def test_a_field_that_old_clients_add_after_they_have_signed_does_not_count() -> None:
    command = Command(12, {"topic": "T", "key": "k"}, version=399)
    user = Credentials("AK", "secret")
    user.sign(command)
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert Signer(b"secret").has_signed(command)
    command.version = 401
    assert not Signer(b"secret").has_signed(command)


texts = st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=6)


@given(texts, st.binary(max_size=40), st.text("abc", min_size=1, max_size=8))
def test_what_was_signed_is_signed_by_that_secret_alone(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    command = Command(10, dict(fields), body)
    Credentials("AK", secret).sign(command)
    assert Signer(secret.encode()).has_signed(command)
    assert not Signer(b"another").has_signed(command)
    command.body += b"x"
    assert not Signer(secret.encode()).has_signed(command)


@given(texts, st.binary(max_size=40), st.binary(max_size=200))
def test_a_signature_is_the_hmac_of_the_standard_library(
    fields: dict[str, str], body: bytes, secret: bytes
) -> None:
    signed = "".join(text for name, text in sorted(fields.items()) if name != "Signature").encode()
    digest = hmac.digest(secret, signed + body, "sha1")
    for _ in range(2):  # the second time by a remembered order of names
        found = Signer(secret).signature(fields, body)
        assert found == base64.b64encode(digest).decode()
        assert Signer(secret).has_signed(Command(10, {**fields, "Signature": found}, body))


def test_orders_of_names_are_remembered_for_known_users_alone_and_within_bounds() -> None:
    known, wrong = Signer(b"secret"), Signer(b"wrong")
    signature_module._orders.clear()

    def ask(signer: Signer, names: Sequence[str]) -> None:
        fields = dict.fromkeys(names, "x")
        fields["Signature"] = signer.signature(fields, b"")
        assert known.has_signed(Command(10, fields)) == (signer is known)

    ask(wrong, ("a", "b"))
    ask(known, ("a",))
    ask(known, [str(number) for number in range(65)])
    ask(known, ("a", 1024 * "b"))
    assert signature_module._orders == {}
    for number in range(3000):
        ask(known, ("a", str(number)))
    assert 0 < len(signature_module._orders) <= 1024


def test_a_request_that_is_sent_again_is_signed_once() -> None:
    command = Command(10, {"topic": "T"}, b"1")
    user = Credentials("AK", "secret")
    user.sign(command)
    before = dict(command.fields)
    user.sign(command)
    assert command.fields == before


def test_a_signature_of_hostile_text_is_wrong_and_no_error() -> None:
    for text in ("", "é", "a" * 100_000):
        command = Command(10, {"AccessKey": "AK", "Signature": text})
        assert not Signer(b"secret").has_signed(command)
    assert "secret" not in repr(Credentials("AK", "secret"))
