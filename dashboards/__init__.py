"""The pictures: figures, the report page and the live page."""
