"""Which tokens one memory of a batch holds: host-side names for what the device stores by number."""

from __future__ import annotations

from collections import Counter

from memory.svdd.values import Values


class Ledger:
    """Ids of one memory: hot ones with the serial number of their location, in order of arrival; cold ones with their
    slot.
    """

    def __init__(self) -> None:
        self.hot: dict[int, int] = {}
        self.cold: dict[int, int] = {}
        self.values = Values()
        self._largest = -1
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.hot) + len(self.cold)

    def __contains__(self, token: int) -> bool:
        return token in self.hot or token in self.cold

    @property
    def next_id(self) -> int:
        """One above the largest id held."""
        return self._largest + 1

    def arrive(self, token: int, serial: int) -> None:
        """A token is hot, at the location with this serial number."""
        self.hot[token] = serial
        self._largest = max(self._largest, token)

    def forget(self, tokens: list[int]) -> None:
        """Tokens are gone, hot or cold."""
        for token in tokens:
            self.hot.pop(token, None)
            if token in self.cold:
                self._free.append(self.cold.pop(token))
        self.values.drop(tokens)
        if self._largest in tokens:
            self._largest = max((*self.hot, *self.cold), default=-1)

    def chill(self, serials: set[int]) -> list[tuple[int, int, int]]:
        """Tokens at these locations turn cold: their (id, serial, slot)."""
        moved = []
        for token, serial in [entry for entry in self.hot.items() if entry[1] in serials]:
            del self.hot[token]
            self.cold[token] = slot = self._free.pop() if self._free else len(self.cold)
            moved.append((token, serial, slot))
        return moved

    def warm(self, slot: int) -> int:
        """The cold token in a slot is about to be hot again: its id."""
        token = next(token for token, place in self.cold.items() if place == slot)
        self._free.append(self.cold.pop(token))
        return token

    def return_cold(self, token: int, slot: int) -> None:
        """A token that could not be made hot is cold again, in the slot it had."""
        self._free.remove(slot)
        self.cold[token] = slot

    def copies(self, tokens: list[int]) -> Counter[int]:
        """How many of the hot tokens among these lie at each serial number."""
        return Counter(self.hot[token] for token in tokens if token in self.hot)
