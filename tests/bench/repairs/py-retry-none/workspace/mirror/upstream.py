"""The upstream server."""

from mirror.errors import UpstreamError
from mirror.retry import retry


class Upstream:
    """`fetch(path)` gives (status, body) or raises OSError; everything else here is built on it."""

    def __init__(self, fetch, *, attempts=3, sleep=None, log=print):
        self._fetch = fetch
        self._options = {"attempts": attempts, "log": log}
        if sleep is not None:
            self._options["sleep"] = sleep

    def get(self, path):
        return retry(lambda: self._once(path), **self._options)

    def _once(self, path):
        try:
            status, body = self._fetch(path)
        except OSError as e:
            raise UpstreamError(f"{path}: {e}", transient=True) from e
        if status >= 500 or status == 429:
            raise UpstreamError(f"{path}: status {status}", transient=True)
        if status != 200:
            raise UpstreamError(f"{path}: status {status}", transient=False)
        return body

    def index(self):
        """{name: version} of everything upstream."""
        return self.get("/index")

    def package(self, name):
        return self.get(f"/packages/{name}")
