"""Keys in the system's keyring. They are written nowhere else."""

from __future__ import annotations

from sakti.core.errors import SaktiError
from sakti.providers.presets import PRESETS
from sakti.providers.registry import KEYRING_SERVICE, keyring_lookup

TITLE = "Keyring"


def keyring_name() -> str:
    """The system's keyring as people know it (`SecretService`, `macOS`); empty where nothing would keep a key. Slow:
    in a thread."""
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
    """The variables whose keys the keyring holds. Slow: in a thread."""
    return tuple(name for p in PRESETS.values() for name in p.keys if keyring_lookup(name))


def keep_key(variable: str, key: str) -> None:
    """Keep the key of `variable`. Raises `SaktiError` where the keyring does not take it. Slow: in a thread."""
    import keyring
    from keyring.errors import KeyringError

    try:
        keyring.set_password(KEYRING_SERVICE, variable, key)
    except (KeyringError, RuntimeError, OSError) as e:
        why = f"The keyring did not take it ({type(e).__name__})"
        raise SaktiError(f"{why}: set {variable} in the environment instead.", title=TITLE) from None
    if keyring_lookup(variable) != key:
        raise SaktiError(f"The keyring lost it: set {variable} in the environment instead.", title=TITLE)
