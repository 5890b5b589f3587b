"""Lints for scenarios, launch lines and configuration files of serving engines."""
