"""Events, attempts, checkpoints, labels, pins, tombstones, idempotency keys; the cache key has the versions.

Revision: 0002
Follows: 0001
"""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ANSWERING = sa.text("state IN ('queued', 'running', 'done')")
NEW_TABLES = (
    "search_tags",
    "events",
    "attempts",
    "checkpoints",
    "reproductions",
    "search_plans",
    "pins",
    "tombstones",
    "idempotency_keys",
    "generations",
)
SEARCH_COLUMNS = (
    ("versions", sa.String(200), False, ""),
    ("near_digest", sa.String(64), True, None),
    ("model", sa.String(200), False, ""),
    ("framework", sa.String(64), False, ""),
    ("label", sa.String(200), True, None),
    ("note", sa.Text, True, None),
    ("last_seq", sa.Integer, False, "0"),
)
PLAN_COLUMNS = (("size_bytes", sa.BigInteger, False, "0"), ("checksum", sa.String(64), False, ""))


def upgrade() -> None:
    """Adds columns and tables, and fills in what follows from the rows that are there."""
    for table, columns in (("searches", SEARCH_COLUMNS), ("plans", PLAN_COLUMNS)):
        for name, kind, nullable, default in columns:
            op.add_column(table, sa.Column(name, kind, nullable=nullable, server_default=default))
    _single_flight("request_digest", "versions")
    op.create_index("ix_searches_near_digest", "searches", ["near_digest", "created_at_us"])
    op.create_index("ix_plans_created_at_us", "plans", ["created_at_us"])
    _tables_of_searches()
    _tables_of_plans()
    op.create_table(
        "generations",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generations")),
    )
    op.execute("INSERT INTO generations (id, value) VALUES (1, 0)")
    _fill(op.get_bind())


def _tables_of_searches() -> None:
    _child("search_tags", sa.Column("tag", sa.String(200), nullable=False), key=("search_id", "tag"))
    op.create_index("ix_search_tags_tag", "search_tags", ["tag"])
    _child(
        "events",
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        key=("search_id", "seq"),
    )
    _child(
        "attempts",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("started_at_us", sa.BigInteger, nullable=False),
        sa.Column("ended_at_us", sa.BigInteger),
        sa.Column("ending", sa.Text),
        key=("search_id", "number"),
    )
    _child(
        "checkpoints",
        sa.Column("layout", sa.Text),
        sa.Column("incumbent", sa.Float),
        sa.Column("bound", sa.Float),
        sa.Column("updated_at_us", sa.BigInteger, nullable=False),
        key=("search_id",),
    )
    _child(
        "reproductions",
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        key=("search_id",),
    )
    _child(
        "idempotency_keys",
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        key=("key",),
    )
    op.create_index("ix_idempotency_keys_search_id", "idempotency_keys", ["search_id"])


def _tables_of_plans() -> None:
    plan_key = {"columns": ["plan_id"], "refcolumns": ["plans.id"]}
    _child(
        "search_plans",
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(**plan_key, name=op.f("fk_search_plans_plan_id_plans")),
        key=("search_id", "plan_id"),
    )
    op.create_index("ix_search_plans_plan_id", "search_plans", ["plan_id"])
    op.create_table(
        "pins",
        sa.Column("plan_id", sa.String(64), nullable=False),
        sa.Column("reason", sa.String(200), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(**plan_key, name=op.f("fk_pins_plan_id_plans")),
        sa.PrimaryKeyConstraint("plan_id", "reason", name=op.f("pk_pins")),
    )
    op.create_table(
        "tombstones",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("gone_at_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
    )


def _child(name: str, *columns: sa.schema.SchemaItem, key: tuple[str, ...]) -> None:
    """A table whose rows go with their search."""
    op.create_table(
        name,
        sa.Column("search_id", sa.String(26), nullable=False),
        *columns,
        sa.ForeignKeyConstraint(["search_id"], ["searches.id"], name=op.f(f"fk_{name}_search_id_searches"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")),
    )


def _single_flight(*columns: str) -> None:
    op.drop_index("uq_searches_single_flight", "searches")
    op.create_index(
        "uq_searches_single_flight", "searches", list(columns), unique=True, sqlite_where=ANSWERING, postgresql_where=ANSWERING
    )


def _fill(connection: sa.Connection) -> None:
    """Checksums and sizes of plans; plans and versions of results; one event with the state of each search."""
    plans = connection.execute(sa.text("SELECT id, body, context FROM plans")).all()
    for plan_id, body, context in plans:
        content = (body + "\n" + context).encode()
        values = {"id": plan_id, "size": len(content), "checksum": hashlib.sha256(content).hexdigest()}
        connection.execute(sa.text("UPDATE plans SET size_bytes = :size, checksum = :checksum WHERE id = :id"), values)
    known = {row[0] for row in plans}
    for search_id, state, result, moment_us in connection.execute(
        sa.text("SELECT id, state, result, COALESCE(finished_at_us, created_at_us) FROM searches")
    ).all():
        document = json.loads(result) if result else {}
        versions = (document.get("plan") or {}).get("versions")
        text = json.dumps(versions, sort_keys=True, separators=(",", ":")) if versions else ""
        connection.execute(
            sa.text("UPDATE searches SET versions = :versions, last_seq = 1 WHERE id = :id"), {"id": search_id, "versions": text}
        )
        connection.execute(
            sa.text("INSERT INTO events (search_id, seq, kind, data, at_us) VALUES (:id, 1, 'state', :data, :at)"),
            {"id": search_id, "data": json.dumps({"state": state}, separators=(",", ":")), "at": moment_us},
        )
        for plan_id in sorted(_named_plans(document) & known):
            connection.execute(
                sa.text("INSERT INTO search_plans (search_id, plan_id) VALUES (:id, :plan)"), {"id": search_id, "plan": plan_id}
            )


def _named_plans(value: object) -> set[str]:
    """Every id in a result: of its plan, and every `plan_id`."""
    found: set[str] = set()
    if isinstance(value, dict):
        plan = value.get("plan")
        if isinstance(plan, dict):
            found.add(str(plan.get("id")))
        if isinstance(value.get("plan_id"), str):
            found.add(value["plan_id"])
        for entry in value.values():
            found |= _named_plans(entry)
    elif isinstance(value, list):
        for entry in value:
            found |= _named_plans(entry)
    return found


def downgrade() -> None:
    """Drops what was added; of searches that differ in versions alone the newest stays."""
    for table in reversed(NEW_TABLES):
        op.drop_table(table)
    op.execute(
        "DELETE FROM searches WHERE state IN ('queued', 'running', 'done') AND EXISTS (SELECT 1 FROM searches AS newer "
        "WHERE newer.request_digest = searches.request_digest AND newer.state IN ('queued', 'running', 'done') "
        "AND newer.id > searches.id)"
    )
    op.drop_index("ix_searches_near_digest", "searches")
    op.drop_index("ix_plans_created_at_us", "plans")
    _single_flight("request_digest")
    for table, columns in (("searches", SEARCH_COLUMNS), ("plans", PLAN_COLUMNS)):
        for name, *_ in columns:
            op.drop_column(table, name)
