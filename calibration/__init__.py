"""The numbers of the model: measured, read from telemetry and public tables, fitted, and validated."""
