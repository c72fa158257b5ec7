"""The nightly job."""

from mirror.errors import UpstreamError


def sync(upstream, local, log=print):
    """Bring `local`, {name: (version, content)}, up to date; returns the names that changed, None where the upstream
    failed. What was copied before a failure stays."""
    changed = []
    try:
        index = upstream.index()
        for name in sorted(index):
            version = index[name]
            if name not in local or local[name][0] != version:
                local[name] = (version, upstream.package(name)["content"])
                changed.append(name)
    except UpstreamError as e:
        log(f"upstream failed: {e}")
        return None
    for name in sorted(set(local) - set(index)):
        del local[name]
        changed.append(name)
    return changed
