"""What can go wrong upstream."""


class UpstreamError(Exception):
    """The upstream did not answer, or not well. `transient`: asking again later may help."""

    def __init__(self, message, *, transient):
        super().__init__(message)
        self.transient = transient
