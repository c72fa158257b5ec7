"""The statement after a trip."""

from tally import money, shares


class Trip:
    def __init__(self, names):
        self.names = list(names)
        self.paid = {name: 0 for name in self.names}
        self.owed = {name: 0 for name in self.names}

    def receipt(self, payer, amount, weights=None):
        """Somebody paid `amount` (text) for all, or for those of `weights`."""
        cents = money.parse(amount)
        parts = shares.split(cents, weights) if weights else shares.equally(cents, self.names)
        self.paid[payer] += cents
        for name, share in parts.items():
            self.owed[name] += share

    def balance(self):
        """What each gets back; negative: has to pay."""
        return {name: self.paid[name] - self.owed[name] for name in self.names}

    def text(self):
        rows = [f"{name}: share {money.show(self.owed[name])}" for name in self.names]
        return "\n".join([*rows, f"total {money.show(sum(self.paid.values()))}"])
