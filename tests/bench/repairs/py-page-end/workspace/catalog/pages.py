"""Which page of how many: everything that counts pages asks here."""


class Page:
    """Page `number`, counted from 1, of `total` things, `size` of them on each page."""

    def __init__(self, number, size, total):
        if size < 1:
            raise ValueError("a page holds one thing at least")
        self.size = size
        self.total = total
        self.number = min(max(1, number), self.count)

    @property
    def count(self):
        return self.total // self.size + 1

    @property
    def start(self):
        return (self.number - 1) * self.size

    @property
    def has_next(self):
        return self.number < self.count

    @property
    def has_previous(self):
        return self.number > 1

    def around(self, reach=2):
        """Numbers of the pages round this one, for the footer."""
        return list(range(max(1, self.number - reach), min(self.count, self.number + reach) + 1))
