"""How a model is laid out on devices: the `layout` of a plan and the same in classical words.

Shapes follow DESIGN 3.2 and 3.7: a module is a pipeline of stages; a stage holds chunks (ranges of layers, one per virtual
stage) and runs on parts, each a set of equal replicas. Every range includes both ends; `[n, n - 1]` is an empty chunk.
Members of a `kind` union that the solver does not honour yet exist here and are refused by `solver.layout_parse`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError


class OmitDefault:
    """Marks a field that a document leaves out while it has its default."""


OMIT = OmitDefault()


def _refuse_lookalikes(value: object) -> object:
    """Counts are integers: integral floats pass, booleans and strings do not; other integer types become `int`."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("wrong_type", "an integer is expected, not {kind}", {"kind": type(value).__name__})
    return operator.index(value) if hasattr(value, "__index__") else value


def _refuse_number_lookalikes(value: object) -> object:
    if isinstance(value, bool | str):
        raise PydanticCustomError("wrong_type", "a number is expected, not {kind}", {"kind": type(value).__name__})
    return value


Count = Annotated[int, BeforeValidator(_refuse_lookalikes)]
MAX_DEVICES = 262_144
MAX_LAYERS = 1_000_000
MAX_MICRO_BATCHES = 1 << 26
Size = Annotated[Count, Field(ge=1, le=MAX_DEVICES)]
MicroBatches = Annotated[Count, Field(ge=1, le=MAX_MICRO_BATCHES)]
Rows = Annotated[Count, Field(ge=1, le=2**53 - 1)]
Index = Annotated[Count, Field(ge=0, le=MAX_LAYERS)]
Number = Annotated[float, BeforeValidator(_refuse_number_lookalikes), Field(allow_inf_nan=False)]
Fraction = Annotated[Number, Field(ge=0.0, le=1.0)]
Range = tuple[Index, Annotated[Count, Field(ge=-1, le=MAX_LAYERS)]]


class Record(BaseModel):
    """Immutable; unknown fields are refused; optional fields that are unset are left out of the document."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_names_only(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [str(name) for name in data if name not in cls.model_fields]
            if unknown:
                context: dict[str, Any] = {"unknown": unknown, "known": sorted(cls.model_fields)}
                raise PydanticCustomError("unknown_field", "unknown field", context)
        return data

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Leaving fields out changes nothing about those that are there: one schema for reading and writing."""
        schema: dict[str, Any] = {**core_schema}
        inner = schema.get("schema")
        if schema["type"] != "model" and isinstance(inner, dict):
            schema["schema"] = {name: value for name, value in inner.items() if name != "serialization"}
        schema.pop("serialization", None)
        return handler(cast(CoreSchema, schema))

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        for name, field in type(self).model_fields.items():
            if field.is_required() or name not in document:
                continue
            value = getattr(self, name)
            absent = value is None and field.default is None
            if absent or (OMIT in field.metadata and value == field.get_default(call_default_factory=True)):
                del document[name]
        return document


def _kind_from_word(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


AxisName = Literal["tp", "cp", "dp", "etp", "ep", "edp"]


class DeviceRange(Record):
    """Physical devices `first ... first + count - 1` of a group; device = node x devices_per_node + local index."""

    group: str
    first: Index
    count: Size


class MeshAxis(Record):
    """Ranks of one axis are `stride` apart in the part's rank list."""

    axis: AxisName
    size: Size
    stride: Size


class Shard(Record):
    """A state kind is kept `replicate` times, each copy cut in `shard` pieces, over the data (x context) parallel ranks."""

    replicate: Size
    shard: Size


class ShardPlan(Record):
    parameters: Shard
    gradients: Shard
    optimizer: Shard

    @property
    def zero(self) -> int:
        """ZeRO stage: how many of optimizer, gradients, parameters are cut (a cut kind implies the ones before it)."""
        if self.parameters.shard > 1:
            return 3
        if self.gradients.shard > 1:
            return 2
        return 1 if self.optimizer.shard > 1 else 0


class Recompute(Record):
    """`selective` recomputes the named modules (empty: the attention core), `full` whole layers."""

    kind: Literal["none", "selective", "full"] = "none"
    modules: Annotated[tuple[str, ...], OMIT] = ()


class Offload(Record):
    """Fractions kept in host memory, on the grid 0, .25, .5, .75, 1."""

    optimizer: Fraction = 0.0
    activations: Fraction = 0.0
    parameters: Annotated[Fraction, OMIT] = 0.0


class ContextParallel(Record):
    kind: Literal["ring", "all_to_all", "all_gather", "hierarchical"] = "ring"


class Strategy(Record):
    sequence_parallel: bool
    shard: ShardPlan
    reshard_after_forward: bool | None = None
    recompute: Recompute
    offload: Offload = Offload()
    context_parallel: ContextParallel | None = None

    @property
    def cp_kind(self) -> str:
        return self.context_parallel.kind if self.context_parallel else "ring"


class Override(Record):
    """Layers `[first, last]` of the stage whose strategy differs in the given fields."""

    layers: Range
    sequence_parallel: bool | None = None
    shard: ShardPlan | None = None
    reshard_after_forward: bool | None = None
    recompute: Recompute | None = None
    offload: Offload | None = None


class Part(Record):
    """A set of equal replicas of one stage; `micro_batches` per replica and step, `share` of the stage's sequences."""

    devices: tuple[DeviceRange, ...] = Field(min_length=1)
    ranks: tuple[Range, ...] = Field(min_length=1)
    mesh: tuple[MeshAxis, ...] = ()
    expert_mesh: Annotated[tuple[MeshAxis, ...], OMIT] = ()
    share: Annotated[Number, Field(gt=0.0, le=1.0)]
    micro_batches: MicroBatches

    def size(self, axis: str) -> int:
        """Size of an axis of either mesh; an axis that is not listed has size 1."""
        return next((entry.size for entry in (*self.mesh, *self.expert_mesh) if entry.axis == axis), 1)

    @property
    def device_count(self) -> int:
        return sum(entry.count for entry in self.devices)

    @property
    def group(self) -> str:
        return self.devices[0].group


NO_LAYERS: Range = (0, -1)


def _without_layers(chunks: Any) -> Any:
    """`[]` stands for a chunk without layers, and for a stage that has only such chunks; `Layout` finds their place."""
    if not isinstance(chunks, list | tuple):
        return chunks
    return [NO_LAYERS if isinstance(chunk, list | tuple) and not chunk else chunk for chunk in chunks] or [NO_LAYERS]


class Stage(Record):
    """A chunk without layers is kept as (n, n - 1), n being the next layer of the pipeline, and written `[]`."""

    chunks: Annotated[tuple[Range, ...], BeforeValidator(_without_layers)]
    holds: Annotated[tuple[Literal["embedding", "head", "mtp"], ...], OMIT] = ()
    parts: tuple[Part, ...] = Field(min_length=1)
    strategy: Strategy
    overrides: Annotated[tuple[Override, ...], OMIT] = ()

    @field_serializer("chunks")
    def _written_chunks(self, chunks: tuple[Range, ...]) -> list[list[int]]:
        held = [[first, last] if first <= last else [] for first, last in chunks]
        return held if any(held) else []

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(layer for first, last in self.chunks for layer in range(first, last + 1))

    def recompute_of(self, layer: int) -> Recompute:
        """Recompute of one layer; the last override that names the layer wins."""
        found = self.strategy.recompute
        for override in self.overrides:
            if override.recompute is not None and override.layers[0] <= layer <= override.layers[1]:
                found = override.recompute
        return found


class Boundary(Record):
    kind: Literal["same", "fan_in", "fan_out", "reshard"]


class Module(Record):
    module: str = "model"
    placement: Literal["colocated", "disjoint"] | None = None
    boundary: Boundary | None = None
    stages: tuple[Stage, ...] = Field(min_length=1)


ScheduleKind = Literal[
    "gpipe", "1f1b", "interleaved", "zero_bubble_h1", "zero_bubble_h2", "zero_bubble_v", "dualpipe", "dualpipe_v"
]
SCHEDULE_KINDS: tuple[ScheduleKind, ...] = (
    "1f1b",
    "interleaved",
    "gpipe",
    "zero_bubble_h1",
    "zero_bubble_h2",
    "zero_bubble_v",
    "dualpipe",
    "dualpipe_v",
)
"""by the code that stands for each in arrays (`solver.schedules`)"""
TWO_CHUNKS = ("zero_bubble_v", "dualpipe", "dualpipe_v")


class Schedule(Record):
    kind: ScheduleKind = "1f1b"

    @property
    def code(self) -> int:
        return SCHEDULE_KINDS.index(self.kind)

    def goes_with(self, vpp: int) -> bool:
        """Whether ranks of this schedule hold so many chunks: two on a path that turns around, several interleaved, else one."""
        return vpp == 2 if self.kind in TWO_CHUNKS else (vpp > 1) == (self.kind == "interleaved")

    def fitting(self, vpp: int) -> str:
        """This kind if it goes with so many chunks, else the plain one that does."""
        return self.kind if self.goes_with(vpp) else "interleaved" if vpp > 1 else "1f1b"

    def pieces(self, stages: int, vpp: int) -> int:
        """Parts into which the layers are cut; dualpipe holds each of them on two stages."""
        return stages * vpp // self.copies

    @property
    def copies(self) -> int:
        return 2 if self.kind == "dualpipe" else 1

    def piece(self, chunk: int, stage: int, stages: int) -> int:
        """Which of these parts a chunk of a stage is, in the order in which a micro-batch passes them."""
        if chunk == 1 and self.kind in TWO_CHUNKS:
            return 2 * stages // self.copies - 1 - stage
        return chunk * stages + stage


class GradientSync(Record):
    kind: Literal["all_reduce", "reduce_scatter", "parameter_server"]
    overlap: bool = True


SequencePolicy = Literal["padded", "packed_static_cp", "per_sequence_cp"]


class Layout(Record):
    """`mbs` rows per micro-batch; `vpp` chunks per stage; gbs = sum over the parts of a stage of dp x mbs x micro_batches."""

    modules: tuple[Module, ...] = Field(min_length=1)
    schedule: Annotated[Schedule, BeforeValidator(_kind_from_word)] = Schedule()
    mbs: Size = 1
    vpp: Size = 1
    sequence_policy: SequencePolicy = "padded"
    gradient_sync: GradientSync
    idle_devices: tuple[DeviceRange, ...] = ()
    equivalence: Literal["exact", "approximate"] = "exact"

    @model_validator(mode="after")
    def _place_chunks_without_layers(self) -> Self:
        """Give them the number of the next layer, which keeps the ranges of a path in order."""
        empty = any(last < first for module in self.modules for stage in module.stages for first, last in stage.chunks)
        if not empty or len(self.modules) > 1:
            return self
        held = [stage.chunks * self.vpp if stage.chunks == (NO_LAYERS,) else stage.chunks for stage in self.stages]
        if any(len(chunks) != self.vpp for chunks in held):
            return self  # refused by the rules, which count chunks
        places: dict[int, int] = {}
        following = 0
        pieces = {(c, i): self.schedule.piece(c, i, self.pp) for c in range(self.vpp) for i in range(self.pp)}
        for (chunk, index), piece in sorted(pieces.items(), key=lambda entry: entry[1]):
            places[piece] = following
            following = max(following, held[index][chunk][1] + 1)
        stages = tuple(
            stage.model_copy(
                update={
                    "chunks": tuple(
                        (places[pieces[c, i]], places[pieces[c, i]] - 1) if last < first else (first, last)
                        for c, (first, last) in enumerate(held[i])
                    )
                }
            )
            for i, stage in enumerate(self.stages)
        )
        object.__setattr__(self, "modules", (self.modules[0].model_copy(update={"stages": stages}),))
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the only module, in pipeline order."""
        assert len(self.modules) == 1, "layouts of several modules are refused by parse_layout"
        return self.modules[0].stages

    @property
    def pp(self) -> int:
        return len(self.stages)

    def global_batch_sequences(self, stage: int = 0) -> int:
        return sum(part.size("dp") * self.mbs * part.micro_batches for part in self.stages[stage].parts)

    def virtual_stages(self) -> Iterator[tuple[int, int, Range]]:
        """`(stage, chunk, layers)` in the order in which a micro-batch passes them, of two copies the one on its way forth."""
        found: dict[int, tuple[int, int, Range]] = {}
        for chunk in range(self.vpp):
            for index, stage in enumerate(self.stages):
                found.setdefault(self.schedule.piece(chunk, index, self.pp), (index, chunk, stage.chunks[chunk]))
        for _, entry in sorted(found.items()):
            yield entry

    def holders(self, name: str) -> list[int]:
        """Stages to which the embedding, or the head and the prediction layers, belong."""
        piece = 0 if name == "embedding" else self.schedule.pieces(self.pp, self.vpp) - 1
        chunks = range(self.vpp)
        return [i for i in range(self.pp) if piece in {self.schedule.piece(chunk, i, self.pp) for chunk in chunks}]


class UniformLayout(Record):
    """A layout in classical words; omitted sizes are 1, `zero` None is the software profile's, `gbs` None the problem's."""

    tp: Size = 1
    cp: Size = 1
    pp: Size = 1
    ep: Size = 1
    etp: Size = 1
    vpp: Size = 1
    mbs: Size = 1
    recompute: Annotated[Recompute, BeforeValidator(_kind_from_word)] = Recompute()
    zero: Annotated[Count, Field(ge=0, le=3)] | None = None
    sequence_parallel: bool = False
    schedule: Annotated[Schedule, BeforeValidator(_kind_from_word)] = Schedule()
    dp: Size | None = None
    gbs: Rows | None = None
    groups: tuple[str, ...] | None = None
    cp_kind: Annotated[Literal["ring", "all_to_all", "all_gather", "hierarchical"], OMIT] = "ring"
    offload_optimizer: Annotated[Fraction, OMIT] = 0.0
    offload_activations: Annotated[Fraction, OMIT] = 0.0
    offload_parameters: Annotated[Fraction, OMIT] = 0.0

    @model_validator(mode="before")
    @classmethod
    def _fill_dependent_defaults(cls, data: Any) -> Any:
        """`sequence_parallel` follows tp, `schedule` and `vpp` each other, null sizes are omitted ones."""
        if not isinstance(data, Mapping):
            return data
        filled = {name: value for name, value in data.items() if value is not None}
        filled.setdefault("sequence_parallel", _greater_than_one(filled.get("tp")))
        filled.setdefault("schedule", "interleaved" if _greater_than_one(filled.get("vpp")) else "1f1b")
        if _kind_of(filled["schedule"]) in TWO_CHUNKS:
            filled.setdefault("vpp", 2)
        if isinstance(filled.get("groups"), str):
            filled["groups"] = (filled["groups"],)
        return filled

    @model_validator(mode="after")
    def _schedule_agrees(self) -> Self:
        if not self.schedule.goes_with(self.vpp):
            text = "schedule {schedule} does not go with vpp {vpp}"
            raise PydanticCustomError("conflict", text, {"schedule": self.schedule.kind, "vpp": self.vpp, "field": "schedule"})
        return self


def _kind_of(schedule: object) -> object:
    return schedule.get("kind") if isinstance(schedule, Mapping) else getattr(schedule, "kind", schedule)


def _greater_than_one(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 1
