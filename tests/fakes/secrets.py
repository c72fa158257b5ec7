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
    "huggingface, short": (f"hf_{A[:20]}", A[:20]),
    "django": ("SECRET_KEY = 'django-insecure-9(a&v%^bz3k=_x+1#qm5)w@7t!'", "v%^bz3k=_x+1#qm5)w@7t!"),
    "value with a bracket": ("password: 'p@ss(w0rd!2024'", "p@ss(w0rd!2024"),
    "value with a comma": ('"db_password": "rT5,gB2;xQ9[w"', "rT5,gB2;xQ9[w"),
    "value cut at a bracket": ('secret = "hunter2hunter2(xyz9"', "hunter2hunter2(xyz9"),
    "curl": ("curl -sS -u ann:h7Gf2 https://api.example.com/", "h7Gf2"),
    "curl, long option": ('curl https://x.example --user "ann:h7Gf2!kQ" -o out', "h7Gf2!kQ"),
    "curl, glued": ("curl -uann:h7Gf2kQ https://x.example", "h7Gf2kQ"),
    "docker": ('{"auths": {"r.example": {"auth": "YW5uOmh1bnRlcjJodW50ZXI="}}}', "YW5uOmh1bnRlcjJodW50ZXI="),
    "npm, basic": ("//registry.example/:_auth=YW5uOmh1bnRlcjJodW50ZXI=", "YW5uOmh1bnRlcjJodW50ZXI="),
    "kubernetes": (f"client-key-data: LS0tLS1CRUdJTiBS{A}", A),
    "htpasswd": (f"ann:$apr1$x7zq1abc${A[:22]}", A[:22]),
    "htpasswd, bcrypt": (f"ann:$2y$10${A[:53]}", A[:53]),
    "htpasswd, sha": (f"ann:{{SHA}}{A[:27]}=", A[:27]),
    "shadow": (f"ann:$6$rounds=5000$sAlt1234${(A + A)[:86]}:19700:0:99999:7:::", A),
    "shadow, yescrypt": (f"ann:$y$j9T$F5Jx5fExrKuPp53xLKQ..1${A[:43]}:19700::::::", A[:43]),
    "argon2": (f"$argon2id$v=19$m=65536,t=3,p=4${A[:22]}${A[:43]}", A[:43]),
    "django hash": (f"pbkdf2_sha256$600000$sAlt12${A[:43]}=", A[:43]),
    "sentry": (f"https://{HEX}@o12345.ingest.sentry.io/4500123", HEX),
    "sentry, own host": (f"SENTRY_DSN=https://{HEX}@errors.example.com:9000/7", HEX),
}  # fmt: skip
