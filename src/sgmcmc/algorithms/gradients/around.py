"""What an estimator around another one says as that one does."""

from dataclasses import dataclass
from typing import Any

from sgmcmc.algorithms.kernel import Estimator


@dataclass(frozen=True)
class Around(Estimator):
    """An estimator that asks another one, and carries that one's state as `inner`."""

    inner: Estimator

    @property
    def centred(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]: as its estimator says
        return self.inner.centred

    @property
    def random(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.random

    @property
    def knows_rows(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.knows_rows

    def renewed_every(self, n_rows: int, batch_size: int) -> int:
        return self.inner.renewed_every(n_rows, batch_size)

    def made(self, state: Any) -> bool:
        return super().made(state) and self.inner.made(state.inner)
