"""`python -m calibration.validation.fit`."""

from calibration.validation.fit.fit import main

main()
