"""Store keys in the system's keyring, and nowhere else. Importing this module imports the keyring."""

from __future__ import annotations

import keyring
from keyring.backends import fail, null
from keyring.errors import KeyringError

from sakti.core.errors import SaktiError
from sakti.providers.presets import PRESETS

SERVICE = "sakti"
TITLE = "Keyring"


def look_up_key(name: str) -> str | None:
    """Return the key stored in the system keyring under `name`, None without one or without a keyring."""
    try:
        return keyring.get_password(SERVICE, name) or None
    except (KeyringError, RuntimeError, OSError):  # no backend, a locked keyring, or a missing bus
        return None


def get_keyring_name() -> str:
    """Return the name of the system's keyring (`SecretService`, `macOS`); empty without a usable one.

    Slow: call it in a thread.
    """
    backend = keyring.get_keyring()
    if isinstance(backend, fail.Keyring | null.Keyring):
        return ""
    return type(backend).__module__.rpartition(".")[2]


def list_stored_keys() -> tuple[str, ...]:
    """Return the variables whose keys the keyring holds. Slow: call it in a thread."""
    return tuple(name for p in PRESETS.values() for name in p.keys if look_up_key(name))


def store_key(variable: str, key: str) -> None:
    """Store the key of `variable`. Raises SaktiError if the keyring refuses it. Slow: use a thread."""
    try:
        store_secret(variable, key)
    except SaktiError as e:
        why = e.message.removesuffix(".")
        raise SaktiError(f"{why}: set {variable} in the environment instead.", title=TITLE) from None


def store_secret(name: str, value: str) -> None:
    """Store a secret under a name. Raises SaktiError if the keyring refuses it. Slow: use a thread."""
    try:
        keyring.set_password(SERVICE, name, value)
    except (KeyringError, RuntimeError, OSError) as e:
        raise SaktiError(f"The keyring refused the key ({type(e).__name__}).", title=TITLE) from None
    if look_up_key(name) != value:
        raise SaktiError("The keyring did not keep the key.", title=TITLE)


def delete_secret(name: str) -> bool:
    """Delete a secret; False without one. Raises SaktiError if the keyring refuses. Slow: use a thread."""
    if look_up_key(name) is None:
        return False
    try:
        keyring.delete_password(SERVICE, name)
    except (KeyringError, RuntimeError, OSError) as e:
        raise SaktiError(f"The keyring did not delete the key ({type(e).__name__}).", title=TITLE) from None
    return True
