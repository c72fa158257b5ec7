"""Certificates are read once, and not for a server on this machine; none is ever left unchecked."""

import ssl

import pytest

from sakti.providers.tls import context, is_local_plain


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://localhost:11434", True),
        ("http://[::1]:8080", True),
        ("https://127.0.0.1:8080", False),
        ("http://localhost.example.org", False),
        ("http://192.168.0.3:8080", False),
        ("http://example.org", False),
        ("127.0.0.1", False),
    ],
)
def test_what_needs_no_certificates(url: str, plain: bool) -> None:
    assert is_local_plain(url) == plain
    assert context(url).verify_mode is ssl.CERT_REQUIRED and context(url).check_hostname
    assert bool(context(url).cert_store_stats()["x509_ca"]) != plain


def test_they_are_read_once_for_each_file_that_is_named() -> None:
    first = context("https://example.org", {})
    assert context("https://example.com/v1", {}) is first
    assert context("https://example.org", {"SSL_CERT_FILE": "other.pem"}) is not first
