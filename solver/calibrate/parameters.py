"""What a calibration may change: five constants of a software profile, and rates of a device; with how far they may move.

Each is fitted by its logarithm under a normal prior around the value that ships, `width` being the standard deviation: about how
much the constant differs between published frameworks (profile) or between boards, clocks and drivers of one kind (device).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from solver.validate.constants import Constants

PROFILE_WIDTHS = {
    "launch_floor_s_per_layer": 0.6,
    "elementwise_factor": 0.45,
    "kernel_overhead_s": 1.2,
    "step_overhead_s": 0.8,
    "p2p_exposed_fraction": 0.5,
}
DEVICE_WIDTHS = {
    "gemm_efficiency": 0.06,
    "memory_efficiency": 0.06,
    "attention_forward_efficiency": 0.12,
    "scaleup_efficiency": 0.12,
    "scaleout_efficiency": 0.30,
}


UNCALIBRATED_ERROR = 0.25
"""half width of the central 90 % of a profile that no run has set"""
LEAST_SCALE = 0.25


@dataclass(frozen=True, slots=True)
class Parameter:
    """`scope` is profile or device, `owner` its name; `shipped` the value the prior sits at."""

    scope: str
    owner: str
    name: str
    shipped: float
    width: float

    def bounded(self, value: float) -> float:
        """The value within what the constant can mean."""
        fraction = self.name.endswith(("_efficiency", "_fraction"))
        return min(value, 1.0) if fraction else value


def profile_parameters(profile: str, assumptions: Mapping[str, float]) -> list[Parameter]:
    """The five of a profile; a constant that ships as zero has no logarithm and stays.

    A profile whose own error is small was set by many runs and moves less for a few more.
    """
    scale = min(1.0, max(LEAST_SCALE, assumptions["time_error_fraction"] / UNCALIBRATED_ERROR))
    return [
        Parameter("profile", profile, name, assumptions[name], width * scale)
        for name, width in PROFILE_WIDTHS.items()
        if assumptions.get(name, 0.0) > 0.0
    ]


def device_parameters(device: str, rates: Mapping[str, float]) -> list[Parameter]:
    """The rates of a device."""
    return [Parameter("device", device, name, rates[name], width) for name, width in DEVICE_WIDTHS.items()]


def with_values(constants: Constants, values: Mapping[Parameter, float]) -> Constants:
    """The constants with the given parameters replaced."""
    profiles = {name: dict(entry) for name, entry in constants.profiles.items()}
    devices = {name: dict(entry) for name, entry in constants.devices.items()}
    for parameter, value in values.items():
        table = profiles if parameter.scope == "profile" else devices
        table.setdefault(parameter.owner, {})[parameter.name] = parameter.bounded(value)
    return replace(constants, profiles=profiles, devices=devices)
