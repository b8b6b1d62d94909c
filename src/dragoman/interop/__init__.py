"""Model formats of other programs: one file per format, for import and export."""
