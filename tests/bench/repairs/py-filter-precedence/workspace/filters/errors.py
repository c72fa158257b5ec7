"""What can be wrong with a filter."""


class FilterError(ValueError):
    """A filter that cannot be read; `position` counts characters from 0."""

    def __init__(self, message, position):
        super().__init__(f"{message} (at {position})")
        self.position = position
