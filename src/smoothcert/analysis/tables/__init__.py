"""Tables: summaries of runs as Markdown, LaTeX, CSV or JSON. The papers' layout is in :mod:`.paper`."""

from smoothcert.analysis.tables.cells import markdown_table
from smoothcert.analysis.tables.listing import TABLE_FORMATS, render_table
from smoothcert.analysis.tables.radii import default_radii, parse_radii

__all__ = ["TABLE_FORMATS", "default_radii", "markdown_table", "parse_radii", "render_table"]
