"""Report: one HTML page that states what runs prove, shows it, and needs nothing from outside."""

from smoothcert.analysis.report.inputs import DataPlace
from smoothcert.analysis.report.page import (
    ReportOptions,
    WrittenReport,
    make_payload,
    render_page,
    write_report,
)

__all__ = ["DataPlace", "ReportOptions", "WrittenReport", "make_payload", "render_page", "write_report"]
