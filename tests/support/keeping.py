"""A keep object of a user's own."""

from __future__ import annotations


class Last:
    """A keep object of the user's, with a store that cannot be written down."""

    def begin(self):
        return ()

    def open(self, carry, params, capacity, chained):
        return params

    def update(self, work, params, weight, hit, chained):
        return params

    def close(self, work):
        return (), work

    def store(self, params, total, chained):
        class Store:
            def add(self, piece):
                self.piece = piece

        return Store()

    def finish(self, carry, store):
        return store.piece
