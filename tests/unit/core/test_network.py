"""Certificates and proxies are chosen by the address of the server and by the environment."""

import ssl

import pytest

from sakti.core.errors import ProviderError
from sakti.core.network import build_client_options, find_proxy, get_tls_context


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


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
def test_only_plain_http_to_this_machine_needs_no_certificates(url: str, plain: bool) -> None:
    context = get_tls_context(url)
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert bool(context.cert_store_stats()["x509_ca"]) != plain


def test_certificates_are_read_once_for_each_file(tmp_path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("")
    first = get_tls_context("https://example.org", {})
    assert get_tls_context("https://example.com/v1", {}) is first
    assert get_tls_context("https://example.org", {"SSL_CERT_FILE": str(other)}) is not first


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_missing_certificates_are_named_and_not_retried(name: str, tmp_path) -> None:
    with pytest.raises(ProviderError) as caught:
        get_tls_context("https://example.org", {name: str(tmp_path / "gone")})
    assert name in caught.value.message and "gone" in caught.value.message
    assert not caught.value.retryable


def test_a_certificate_file_without_certificates_is_named(tmp_path, monkeypatch) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(junk))
    with pytest.raises(ProviderError) as caught:
        get_tls_context("https://example.org")
    assert "SSL_CERT_FILE" in caught.value.message and "junk.pem" in caught.value.message


@pytest.mark.parametrize(
    ("env", "url", "proxy"),
    [
        ({}, "https://api.example.com/v1", ""),
        ({"HTTPS_PROXY": "http://p:1"}, "https://api.example.com/v1", "http://p:1"),
        ({"https_proxy": "http://p:1"}, "https://api.example.com/v1", "http://p:1"),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"}, "https://api.example.com", "http://low:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://api.example.com", ""),
        ({"HTTP_PROXY": "p:1"}, "http://api.example.com", "http://p:1"),
        ({"ALL_PROXY": "socks5://p:1"}, "https://api.example.com", "socks5://p:1"),
        ({"ALL_PROXY": "socks5h://p:1"}, "https://api.example.com", "socks5h://p:1"),
        ({"ALL_PROXY": "socks://p:1"}, "https://api.example.com", "socks5://p:1"),
        ({"ALL_PROXY": "http://a:1", "HTTPS_PROXY": "http://p:1"}, "https://api.example.com", "http://p:1"),
        ({"HTTPS_PROXY": "http://me:s%40t@p:1"}, "https://api.example.com", "http://me:s%40t@p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "https://localhost:8443", ""),
        ({"HTTPS_PROXY": "http://p:1"}, "https://127.0.0.9:8443", ""),
        ({"ALL_PROXY": "http://p:1"}, "http://[::1]:8443", ""),
    ],
)
def test_the_environment_names_the_proxy(env: dict[str, str], url: str, proxy: str, monkeypatch) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(url) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("*", "https://api.example.com", True),
        ("example.com", "https://api.example.com", True),
        (".example.com", "https://api.example.com", True),
        ("other.com, api.example.com", "https://api.example.com", True),
        ("api.example.com:8443", "https://api.example.com:8443/v1", True),
        ("api.example.com:8443", "https://api.example.com/v1", False),
        ("*.example.com", "https://api.example.com", True),
        ("EXAMPLE.com", "https://api.example.com", True),
        ("api.example.com:443", "https://api.example.com/v1", True),
        ("api.example.com:80", "http://api.example.com/v1", True),
        ("[fd00::1]:8000", "http://[fd00::1]:8000", True),
        ("ample.com", "https://api.example.com", False),
        ("10.0.0.0/8", "http://10.1.2.3:8000", True),
        ("10.0.0.0/8", "http://11.1.2.3:8000", False),
        ("10.1.2.3", "http://10.1.2.3:8000", True),
        ("fd00::/8", "http://[fd00::1]:8000", True),
        ("[fd00::1]", "http://[fd00::1]:8000", True),
        ("not a/network", "https://api.example.com", False),
    ],
)
@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_no_proxy_names_what_is_reached_directly(name: str, no_proxy: str, url: str, direct: bool, monkeypatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://p:1")
    monkeypatch.setenv(name, no_proxy)
    assert (find_proxy(url) == "") == direct


def test_an_unknown_kind_of_proxy_is_named(monkeypatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://me:secret@p.example:1")
    with pytest.raises(ProviderError) as caught:
        build_client_options("https://api.example.com")
    assert "p.example:1" in caught.value.message and "socks4" in caught.value.message
    assert "secret" not in caught.value.message and not caught.value.retryable
