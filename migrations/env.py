"""Alembic's environment: runs on the connection that `planner_service.store.migrate` hands over."""

from alembic import context

from planner_service.store.tables import metadata


def run_migrations() -> None:
    """One transaction for all migrations; the caller owns it."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=False,
        transactional_ddl=True,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise SystemExit("run `planner db upgrade`; offline SQL is not produced")
run_migrations()
