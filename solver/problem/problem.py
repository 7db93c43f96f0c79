"""The problem: one frozen document, the single definition that HTTP, command line and Python share."""

from __future__ import annotations

from solver.problem.cluster import Cluster
from solver.problem.model import Model, Module, Transformer
from solver.problem.options import Constraints, Framework, Objective, Running, Search
from solver.problem.spec import Spec
from solver.problem.workload import Workload


class Problem(Spec):
    """What is asked. Build it with `parse_problem`, which also fills defaults and checks the fields against each other."""

    model: Model
    workload: Workload
    cluster: Cluster
    objective: Objective = Objective()
    framework: Framework = Framework()
    constraints: Constraints = Constraints()
    search: Search = Search()
    running: Running | None = None

    @property
    def transformer(self) -> Transformer:
        """The sizes of the model of a parsed problem; of several modules those of the last, which is the one planned."""
        modules = self.model.modules
        transformer = self.model.transformer if modules is None else modules[-1].transformer
        assert transformer is not None, "a parsed problem has a transformer"
        return transformer

    @property
    def planned_module(self) -> str:
        """The name of the module that is planned: the last of several, `model` when there is one."""
        return self.model.modules[-1].name if self.model.modules is not None else "model"

    @property
    def encoders(self) -> tuple[Module, ...]:
        """The modules that feed the planned one; none for a single model."""
        return self.model.modules[:-1] if self.model.modules is not None else ()
