"""`python -m planner_service.cli` is `planner`."""

from planner_service.cli import main

if __name__ == "__main__":
    main()
