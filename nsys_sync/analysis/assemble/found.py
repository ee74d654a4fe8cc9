"""Everything that the analysis found, before it is put into words and values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nsys_sync.analysis.calls import Activity, Blocking, Events
from nsys_sync.analysis.idle import Blame
from nsys_sync.analysis.sites import Place, Users
from nsys_sync.analysis.stacks import Stacks
from nsys_sync.analysis.steps import ProcessSteps
from nsys_sync.analysis.whatif.predictor import Predictor
from nsys_sync.analysis.window import Window
from nsys_sync.trace.reader import Trace
from nsys_sync.trace.tables import Column


@dataclass(frozen=True)
class Findings:
    """Everything that ``analyze`` found, as columns."""

    trace: Trace
    activity: Activity
    blocking: Blocking
    events: Events
    steps: list[ProcessSteps]
    window: Window
    stacks: Stacks
    users: Users
    places: list[Place]
    site: Column
    charged: Blame
    gil_held: Column | None
    predictor: Predictor

    @property
    def counted(self) -> Column:
        """Rows of the events that are reported on."""
        return np.flatnonzero(self.window.counts(self.events.pid, self.events.start, self.events.end))
