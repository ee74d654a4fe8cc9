"""Which of several cooperating processes this one is."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


class Rank(NamedTuple):
    """A process's number, and how many there are."""

    number: int
    world: int


def own_rank() -> Rank | None:
    """From torch.distributed if the program has initialised it, else from the launcher's variables; None if alone."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return Rank(int(distributed.get_rank()), int(distributed.get_world_size()))
    number, world = _variable(_RANK), _variable(_WORLD)
    return None if number is None or world is None else Rank(number, world)


def _variable(names: tuple[str, ...]) -> int | None:
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None
