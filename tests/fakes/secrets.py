"""Secrets of many kinds, none of them real: each as it stands in a text, and what of it must not be seen."""

from __future__ import annotations

A = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzAbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
HEX = "3f2a9c81d47be6509a1c5e7f80b2d4c6"
BECH = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
DIGITS = "123456789012"
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\nVJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictG"
PEM = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----"
PGP = f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{BODY}\n=aB3d\n-----END PGP PRIVATE KEY BLOCK-----"
WORDS = "legal winner thank year wave sausage worth useful legal winner thank yellow"

# by kind: the text, and the secret in it
KINDS: dict[str, tuple[str, str]] = {
    "github": (f"remote: https://x ghp_{A[:36]} done", f"ghp_{A[:36]}"),
    "github fine-grained": (f"github_pat_{A[:22]}_{A[:30]}", A[:22]),
    "github, glued": (f"tokenghp_{A[:36]}", f"ghp_{A[:36]}"),
    "gitlab": (f"use glpat-{A[:20]} here", f"glpat-{A[:20]}"),
    "slack token": (f"xoxb-{DIGITS}-{DIGITS}-{A[:24]}", A[:24]),
    "slack hook": (f"https://hooks.slack.com/services/T0AB12CD3/B0EF45GH6/{A[:24]}", A[:24]),
    "openai": (f"the key is sk-proj-{A[:48]}", A[:40]),
    "anthropic": (f"sk-ant-api03-{A[:60]}", A[:40]),
    "stripe": (f"charge with sk_live_{A[:24]}", A[:24]),
    "aws id": ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    "aws secret": (f"aws_secret_access_key = {A[:20]}/{A[20:39]}", A[:20]),
    "google": (f"AIza{A[:35]}", A[:35]),
    "json web token": (f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{A[:43]}", "eyJzdWIiOiIxMjM0NTY3ODkwIn0"),
    "huggingface": ("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH", "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"),
    "npm": (f"//registry.npmjs.org/:_authToken=npm_{A[:36]}", A[:36]),
    "pypi": (f"pypi-AgEIcHlwaS5vcmc{A[:60]}", A[:60]),
    "private key": (PEM, BODY),
    "private key, escaped": (PEM.replace("\n", "\\n"), BODY.split("\n")[0]),
    "pgp": (PGP, BODY),
    "bearer": (f"Authorization: Bearer {A[:30]}", A[:30]),
    "basic": ("Authorization: Basic YWRtaW46aHVudGVyMmh1bnRlcg==", "YWRtaW46aHVudGVyMmh1bnRlcg"),
    "cookie": (f"Cookie: sessionid={A[:26]}; theme=dark", A[:26]),
    "url password": ("postgres://ann:s3cr3t-Pa55@db.internal/x", "s3cr3t-Pa55"),
    "DB_PASS": ("DB_PASS=hunter2hunter2", "hunter2hunter2"),
    "TOKEN": (f"export TOKEN={A[:12]}", A[:12]),
    "SECRET": ("SECRET=9f8e7d6c5b4a", "9f8e7d6c5b4a"),
    "client_secret": (f'"client_secret": "{A[:16]}"', A[:16]),
    "password without a digit": ('password = "CorrectHorseBattery"', "CorrectHorseBattery"),
    "option": ("mysql --password hunter2hunter2 -u root", "hunter2hunter2"),
    "sendgrid": (f"SG.{A[:22]}.{A[:43]}", A[:22]),
    "twilio": (f"SK{HEX}", HEX),
    "azure": (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={A[:62]}+/aB3dE5fG7hJ9kL1mN2pQ==", A[:62]),
    "age": (f"AGE-SECRET-KEY-1{BECH}{BECH[:26]}", BECH),
    "telegram": ("110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"),
    "doppler": (f"dp.pt.{A[:43]}", A[:43]),
    "mnemonic": (f'mnemonic: "{WORDS}"', WORDS),
    "vault": (f"hvs.{A[:30]}", A[:30]),
    "digitalocean": (f"dop_v1_{HEX}{HEX}", HEX),
    "shopify": (f"shpat_{HEX}", HEX),
    "tailscale": (f"tskey-auth-{A[:30]}", A[:30]),
    "databricks": (f"dapi{HEX}", HEX),
}  # fmt: skip
