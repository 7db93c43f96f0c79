"""The problem: one frozen document, the single definition that HTTP, command line and Python share."""

from __future__ import annotations

from solver.problem.cluster import Cluster
from solver.problem.model import Model, Transformer
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
        """The sizes of the model of a parsed problem."""
        transformer = self.model.transformer
        assert transformer is not None, "a parsed problem has a transformer"
        return transformer
