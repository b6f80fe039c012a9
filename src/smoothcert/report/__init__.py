"""Report: one HTML page that states what runs prove, shows it, and needs nothing from outside."""

from smoothcert.report.data import DataPlace
from smoothcert.report.page import WrittenReport, render_page, write_report
from smoothcert.report.payload import ReportOptions, make_payload

__all__ = ["DataPlace", "ReportOptions", "WrittenReport", "make_payload", "render_page", "write_report"]
