"""The cluster: groups of equal nodes, their fabric and hosts, and the links between groups.

A device given by name becomes the content of its catalogue file here. Host, fabric and devices_per_node are 0 / empty
until `complete` has filled them from the catalogue; a parsed problem holds no such gap.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from solver.catalog import UnknownName, find_device
from solver.problem.spec import Amount, Count, Flag, Fraction, Name, ProperFraction, Quantity, Sized, Spec, later
from solver.problem.workload import Precision
from solver.units import Dtype

MAX_GROUPS: Final = 64
MAX_DEVICES: Final = 262_144


class DeviceRates(Spec):
    """Achieved fractions of the data sheet, fitted on published runs (the defaults are for devices given inline).

    gemm_half_depth: inner dimension K at which a matrix product reaches half of its rate.
    attention_backward_ratio: rate of the backward attention kernel over that of the forward one; flash2_ratio: rate of
    FlashAttention-2 over the device's fastest kernel.
    fp8_gemm_efficiency: of the fp8 peak; grouped_gemm_ratio: rate of experts' grouped products over that of one product.
    scaleup/scaleout_efficiency: achieved over nominal rate of collectives inside / outside the innermost fabric tier.
    """

    gemm_efficiency: Annotated[Quantity, Field(le=1)] = 0.75
    gemm_half_depth: Amount = 300.0
    fp8_gemm_efficiency: Annotated[Quantity, Field(le=1)] = 0.6
    grouped_gemm_ratio: Annotated[Quantity, Field(le=1)] = 0.85
    memory_efficiency: Annotated[Quantity, Field(le=1)] = 0.88
    attention_forward_efficiency: Annotated[Quantity, Field(le=1)] = 0.55
    attention_backward_ratio: Annotated[Quantity, Field(le=4)] = 0.85
    flash2_ratio: Annotated[Quantity, Field(le=1)] = 1.0
    scaleup_efficiency: Annotated[Quantity, Field(le=1)] = 0.75
    scaleout_efficiency: Annotated[Quantity, Field(le=1)] = 0.85


class DeviceSpec(Spec):
    """One kind of device. peak_flops_per_s is dense (no sparsity), memory_bytes what a process can allocate."""

    name: Name
    vendor: Name
    peak_flops_per_s: Annotated[dict[Dtype, Quantity], Sized(1)]
    memory_bytes: Quantity
    memory_bytes_per_s: Quantity
    power_w: Quantity | None = None
    streaming_multiprocessors: Annotated[Count, Field(le=65536)] = 100
    rates: DeviceRates = DeviceRates()


def _device_content(value: Any) -> Any:
    """The content of a device named by its catalogue name or alias; anything else is returned as it is."""
    if not isinstance(value, str):
        return value
    try:
        return find_device(value).content
    except UnknownName as error:
        code = "ambiguous_name" if error.ambiguous else "unknown_name"
        raise PydanticCustomError(code, "{text}", {"text": str(error), "allowed": list(error.candidates)}) from error


class Host(Spec):
    """memory_bytes of one node; pcie_bytes_per_s of one device, one way."""

    memory_bytes: Quantity = later(0.0)
    pcie_bytes_per_s: Quantity = later(0.0)


class FabricTier(Spec):
    """One level of the network, innermost first; rates one way and per device.

    A node sends devices_per_node x bytes_per_s_per_device over ports_per_node equal ports (NICs).
    span_devices 0: filled from the group (the last tier spans the whole group). efficiency: achieved over nominal rate of
    collectives on this tier where it was measured; null takes the device's scaleup or scaleout efficiency.
    """

    name: Name
    span_devices: Count = later(0)
    bytes_per_s_per_device: Quantity
    latency_s: Amount = 1.0e-5
    kind: Literal["switch", "mesh", "torus"] = "switch"
    ports_per_node: Count | None = None
    oversubscription: Annotated[Quantity, Field(ge=1)] = 1.0
    efficiency: Annotated[Quantity, Field(le=1)] | None = None
    shape: tuple[Count, ...] | None = None


class Group(Spec):
    """Nodes of one kind."""

    name: Name
    device: Annotated[DeviceSpec, BeforeValidator(_device_content)]
    nodes: Count
    devices_per_node: Count = later(0)
    host: Host = Host()
    fabric: Annotated[tuple[FabricTier, ...], Sized(0, 16)] = ()
    price_per_device_hour: Amount | None = None
    precision: Precision | None = None

    @property
    def devices(self) -> int:
        """Number of devices of the group."""
        return self.nodes * self.devices_per_node


class Link(Spec):
    """How two groups are joined; collectives: whether one communicator may span both."""

    between: Annotated[tuple[Name, ...], Sized(2, 2)]
    bytes_per_s_per_node: Quantity
    latency_s: Amount = 1.0e-5
    collectives: Flag = False

    @model_validator(mode="after")
    def _two_groups(self) -> Link:
        if self.between[0] == self.between[1]:
            raise PydanticCustomError("conflict", "a link joins two different groups")
        return self


class NodeMatrix(Spec):
    """Links between every pair of nodes, in the order of groups and nodes (parsed, not yet priced)."""

    bytes_per_s: tuple[tuple[Amount, ...], ...]
    latency_s: tuple[tuple[Amount, ...], ...] | None = None
    collectives: Flag = True


class TraceSegment(Spec):
    """For duration_s the named tiers run at the given fraction of their rate."""

    duration_s: Quantity
    factors: dict[Name, Fraction]


class NetworkTrace(Spec):
    """Bandwidth that varies in time (parsed, not yet priced)."""

    plan_for: Literal["mean", "worst"]
    segments: Annotated[tuple[TraceSegment, ...], Sized(1)]


class Cluster(Spec):
    """All groups; links are pairs (a parsed problem has one for every pair of groups)."""

    groups: Annotated[tuple[Group, ...], Sized(1, MAX_GROUPS)]
    links: tuple[Link, ...] = ()
    node_matrix: NodeMatrix | None = None
    profile: Name | None = None
    network_trace: NetworkTrace | None = None
    memory_reserve_fraction: ProperFraction = 0.06
    currency: Name = "USD"

    @property
    def devices(self) -> int:
        """Number of devices of all groups."""
        return sum(group.devices for group in self.groups)
