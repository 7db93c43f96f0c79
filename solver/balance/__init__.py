"""Variable-length batches: the fixed scenario set of a problem, and how its rows are dealt to replicas."""

from solver.balance.scenarios import ScenarioSet, scenario_set

__all__ = ["ScenarioSet", "scenario_set"]
