"""What the service needs of a solver, as one protocol in JSON terms, and the adapter of the package `solver`.

Documents go in, JSON texts come out: a text is made once, stored, and returned byte for byte. Heavy parts of the solver
are imported when first used, so a process that only checks documents stays small.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, cast

from planner_service.store.records import StoredPlan

Document = dict[str, Any]
ShouldStop = Callable[[], bool]
OnProgress = Callable[[Document], None]
Incumbent = Callable[[], Document]
OnIncumbent = Callable[[float, Incumbent], None]
"""told the value of each new incumbent and how to get its layout, which is only made when somebody wants it"""
DEFAULT_SOLVER = "planner_service.solver_adapter:RealSolver"


@dataclass(frozen=True, slots=True)
class Checked:
    """A problem that the solver accepts, and its two digests.

    `near_digest` is equal for problems whose answers are worth trying on each other; `versions` (of solver, cost model and
    data, a JSON text) belongs to every cache key; `model` is what a list of searches calls the model.
    """

    problem_digest: str
    request_digest: str
    time_limit_s: float | None
    framework: str
    model: str = ""
    near_digest: str | None = None
    versions: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """What a search may begin with: layouts found for this very problem, layouts of near ones, and a bound proven for it."""

    layouts: tuple[Document, ...] = ()
    near: tuple[Document, ...] = ()
    bound: float | None = None


NOTHING_KNOWN = Start()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A result as JSON text, whether it is proven, and every plan it refers to."""

    result: str
    proven: bool
    plans: tuple[StoredPlan, ...]


@dataclass(frozen=True, slots=True)
class EvaluationAnswer:
    """An evaluation as JSON text, and its plan if it has one."""

    evaluation: str
    plan: StoredPlan | None


LengthFiles = Iterable[tuple[str, BinaryIO]]


@dataclass(frozen=True, slots=True)
class LengthWish:
    """What to read of length files: the column or member, the limit of the model, how many characters of text make a token, and
    the most bytes that a gzip file may unpack to (None: the solver's own limit)."""

    column: str | None = None
    max_tokens: int | None = None
    characters_per_token: float | None = None
    max_unpacked_bytes: int | None = None


class SolverPort(Protocol):
    """A solver; every method raises `planner_service.problems.Problem` for input it refuses."""

    def check(self, problem: Document) -> Checked:
        """Parses and normalises a problem."""
        ...

    def warm(self) -> None:
        """Gets ready to search, so that no search pays for it."""
        ...

    def admit(self, problem: Document, most_skeletons: int) -> int:
        """How many skeletons the space has at least; refused when they are more than `most_skeletons`."""
        ...

    def versions(self) -> str:
        """Versions of solver, cost model and data, as in `Checked`."""
        ...

    def search(
        self,
        problem: Document,
        should_stop: ShouldStop,
        on_progress: OnProgress,
        cancelled: ShouldStop,
        *,
        start: Start = NOTHING_KNOWN,
        on_incumbent: OnIncumbent | None = None,
    ) -> SearchAnswer:
        """Searches until proven or told to stop. `start` changes what is known at its beginning, not a proven answer."""
        ...

    def evaluate(self, problem: Document, layout: Document) -> EvaluationAnswer:
        """Judges one layout."""
        ...

    def export(self, plan: StoredPlan, framework: str) -> str:
        """The files that run a plan in a framework."""
        ...

    def timeline(self, plan: StoredPlan, scenario: int) -> str:
        """Every operation of one step of a plan, for one of its scenarios."""
        ...

    def calibrate(self, request: Document) -> str:
        """The profile that measurements give."""
        ...

    def profiles(self) -> list[Document]:
        """The profiles that ship."""
        ...

    def with_profile(self, problem: Document, profile: Document) -> Document:
        """The problem with a calibrated profile in place of its name."""
        ...

    def import_hf_config(self, config: Document) -> str:
        """The model understood from a Hugging Face config.json."""
        ...

    def import_lengths(self, files: LengthFiles, wish: LengthWish) -> str:
        """The sequence lengths in files, ready for a problem, with what they are like."""
        ...

    def devices(self) -> str:
        """The catalogue of devices."""
        ...

    def models(self) -> str:
        """The catalogue of model presets."""
        ...

    def frameworks(self) -> str:
        """The rule sets of frameworks."""
        ...

    def schemas(self) -> Document:
        """JSON schemas of the solver's documents, by component name."""
        ...


def load_solver(name: str) -> SolverPort:
    """An instance of the class named `module:Class`."""
    module, _, attribute = name.partition(":")
    return cast(SolverPort, getattr(importlib.import_module(module), attribute)())
