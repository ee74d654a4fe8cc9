"""A report in a Python session: its values, and tables and a figure of them.

pandas and plotly are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nsys_sync.analysis import findings
from nsys_sync.analysis.findings import Gap

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Report(findings.Report, frozen=True, kw_only=True):
    """What ``nsys_sync.analyze`` and ``nsys_sync.Report.load`` give."""

    @classmethod
    def of(cls, report: findings.Report) -> Report:
        """The same report with these methods."""
        return cls(**msgspec.structs.asdict(report))

    def to_frame(self) -> pd.DataFrame:
        """One row a site: times in ns, nested values flattened."""
        import pandas as pd

        columns = {
            "id": [s.id for s in self.sites],
            "file": [s.file for s in self.sites],
            "line": [s.line for s in self.sites],
            "function": [s.function for s in self.sites],
            "rule": [s.rule for s in self.sites],
            "class": [s.class_ for s in self.sites],
            "calls": [s.calls for s in self.sites],
            "events": [s.events for s in self.sites],
            "calls_per_step": [s.calls_per_step for s in self.sites],
            "wait_ns": [s.wait_ns.total for s in self.sites],
            "wait_median_ns": [s.wait_ns.median for s in self.sites],
            "wait_max_ns": [s.wait_ns.max for s in self.sites],
            "recoverable_ns": [s.recoverable_ns for s in self.sites],
            "bytes": [s.bytes for s in self.sites],
            "stack_origin": [s.stack_origin for s in self.sites],
        }
        return pd.DataFrame(columns).astype({"line": "Int64", "recoverable_ns": "Int64"})

    def gaps_frame(self) -> pd.DataFrame:
        """One row a listed gap (the longest ones, ``gaps.shown`` of ``gaps.total``), times in ns."""
        import pandas as pd

        columns = list(Gap.__struct_fields__)
        return pd.DataFrame([[getattr(gap, name) for name in columns] for gap in self.gaps.items], columns=columns)

    def figure(self) -> go.Figure:
        """The sites by what each could give back, as a plotly figure."""
        from nsys_sync.report.figure import figure

        return figure(self, None)

    def _repr_html_(self) -> str:
        """The table of sites, for notebooks."""
        return str(self.to_frame().to_html(index=False))
