"""Keep keys in the system's keyring, and nowhere else."""

from __future__ import annotations

from sakti.core.errors import SaktiError
from sakti.providers.presets import PRESETS
from sakti.providers.registry import KEYRING_SERVICE, keyring_lookup

TITLE = "Keyring"


def keyring_name() -> str:
    """Return the name of the system's keyring (`SecretService`, `macOS`); empty without a usable one.

    Slow: call it in a thread.
    """
    try:
        import keyring
        from keyring.backends import fail, null
    except ImportError:
        return ""
    backend = keyring.get_keyring()
    if isinstance(backend, fail.Keyring | null.Keyring):
        return ""
    return type(backend).__module__.rpartition(".")[2]


def kept_keys() -> tuple[str, ...]:
    """Return the variables whose keys the keyring holds. Slow: call it in a thread."""
    return tuple(name for p in PRESETS.values() for name in p.keys if keyring_lookup(name))


def keep_key(variable: str, key: str) -> None:
    """Store the key of `variable`. Raises SaktiError if the keyring refuses it. Slow: use a thread."""
    import keyring
    from keyring.errors import KeyringError

    try:
        keyring.set_password(KEYRING_SERVICE, variable, key)
    except (KeyringError, RuntimeError, OSError) as e:
        why = f"The keyring refused the key ({type(e).__name__})"
        raise SaktiError(f"{why}: set {variable} in the environment instead.", title=TITLE) from None
    if keyring_lookup(variable) != key:
        raise SaktiError(f"The keyring did not keep the key: set {variable} in the environment instead.", title=TITLE)
