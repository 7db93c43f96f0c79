"""The command line `planner`."""

from planner_service.cli import catalogue as catalogue
from planner_service.cli import lengths as lengths
from planner_service.cli import measuring as measuring
from planner_service.cli.commands import main

__all__ = ["main"]
