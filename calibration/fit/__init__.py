"""Measurements of a device to its profile, with residuals, intervals and what does not fit. No torch here."""

from calibration.fit.fitted import FittedProfile, fit_profile

__all__ = ["FittedProfile", "fit_profile"]
