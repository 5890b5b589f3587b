"""One reader per format of telemetry; `calibration.telemetry.registry` lists them."""
