"""Signatures of RocketMQ 4's clients, against those that real ones have sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remoting.wire.command import Command
from remoting.wire.signature import Credentials, is_signed_by, signature


def test_the_values_are_signed_in_the_order_of_their_names_and_then_the_body() -> None:
    fields = {"topic": "TopicTest", "queueId": "0", "AccessKey": "AK"}
    assert signature(b"SK", fields, b"hello") == "qoKyP85xbSe/67jQdBOekolxpBY="


def test_the_signature_of_a_client_without_credentials_is_one_by_an_empty_secret() -> None:
    # As the C++ client sends it.
    fields = {"AccessKey": "", "OnsChannel": "ALIYUN", "topic": "TopicTest"}
    assert signature(b"", fields, b"") == "N/YT7X6tJe5UfutmW+uNwTTJ7Fc="


def test_a_field_that_old_clients_add_after_they_have_signed_does_not_count() -> None:
    command = Command(12, {"topic": "T", "key": "k"}, version=399)
    user = Credentials("AK", "secret")
    user.sign(command)
    command.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert is_signed_by(command, b"secret")
    command.version = 401
    assert not is_signed_by(command, b"secret")


texts = st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=6)


@given(texts, st.binary(max_size=40), st.text("abc", min_size=1, max_size=8))
def test_what_was_signed_is_signed_by_that_secret_alone(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    command = Command(10, dict(fields), body)
    Credentials("AK", secret).sign(command)
    assert is_signed_by(command, secret.encode())
    assert not is_signed_by(command, b"another")
    command.body += b"x"
    assert not is_signed_by(command, secret.encode())


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
        assert not is_signed_by(command, b"secret")
    assert "secret" not in repr(Credentials("AK", "secret"))
