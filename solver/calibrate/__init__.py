"""Calibration of a software profile and of device rates from measured runs and collectives."""

from solver.calibrate.applied import apply_profile
from solver.calibrate.profile import Measurements, calibrate
from solver.calibrate.runs import refit

__all__ = ["Measurements", "apply_profile", "calibrate", "refit"]
