"""Plots: what runs certified, drawn as PNG, SVG or PDF at column or page width. A new kind is a new file."""
