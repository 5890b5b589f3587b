"""Fits a profile to a device's measurements, with residuals, intervals and outliers. No torch here."""

from calibration.fit.fitted import FittedProfile, fit_profile

__all__ = ["FittedProfile", "fit_profile"]
