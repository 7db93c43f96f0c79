"""The tables, as SQLAlchemy metadata; the migrations produce exactly these (a test compares them on both databases)."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ANSWERING_SQL = text("state IN ('queued', 'running', 'done')")

searches = Table(
    "searches",
    metadata,
    Column("id", String(26), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("problem_digest", String(64), nullable=False),
    Column("request_digest", String(64), nullable=False),
    Column("document", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("finished_at_us", BigInteger),
    Column("progress", Text, nullable=False),
    Column("result", Text),
    Column("proven", Boolean, nullable=False),
    Column("error", Text),
    Column("attempts", Integer, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_expires_us", BigInteger),
    Column("versions", String(200), nullable=False, server_default=""),
    Column("near_digest", String(64)),
    Column("model", String(200), nullable=False, server_default=""),
    Column("framework", String(64), nullable=False, server_default=""),
    Column("label", String(200)),
    Column("note", Text),
    Column("last_seq", Integer, nullable=False, server_default="0"),
    CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"),
    CheckConstraint("(state = 'running') = (lease_owner IS NOT NULL)", name="lease"),
    Index(
        "uq_searches_single_flight",
        "request_digest",
        "versions",
        unique=True,
        sqlite_where=ANSWERING_SQL,
        postgresql_where=ANSWERING_SQL,
    ),
    Index("ix_searches_problem_digest", "problem_digest", "proven"),
    Index("ix_searches_near_digest", "near_digest", "created_at_us"),
    Index("ix_searches_state", "state", "created_at_us"),
    Index("ix_searches_created_at_us", "created_at_us", "id"),
)


def _search_id() -> Column[str]:
    """A column that goes with its search."""
    return Column("search_id", String(26), ForeignKey("searches.id", ondelete="CASCADE"), primary_key=True)


search_tags = Table(
    "search_tags",
    metadata,
    _search_id(),
    Column("tag", String(200), primary_key=True),
    Index("ix_search_tags_tag", "tag"),
)

events = Table(
    "events",
    metadata,
    _search_id(),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("data", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)
"""What happened to a search, in order; progress is thinned out, changes of state are all kept."""

attempts = Table(
    "attempts",
    metadata,
    _search_id(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("owner", String(64), nullable=False),
    Column("started_at_us", BigInteger, nullable=False),
    Column("ended_at_us", BigInteger),
    Column("ending", Text),
)
"""Every start of a search and how it ended."""

checkpoints = Table(
    "checkpoints",
    metadata,
    _search_id(),
    Column("layout", Text),
    Column("incumbent", Float),
    Column("bound", Float),
    Column("updated_at_us", BigInteger, nullable=False),
)
"""What an unended search has found: its next start begins there."""

reproductions = Table(
    "reproductions",
    metadata,
    _search_id(),
    Column("body", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
)
"""All that is needed to see a poisoned search fail again."""

plans = Table(
    "plans",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("body", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False, server_default="0"),
    Column("checksum", String(64), nullable=False, server_default=""),
    Index("ix_plans_created_at_us", "created_at_us"),
)


def _plan_id() -> Column[str]:
    """A column that keeps its plan from being deleted."""
    return Column("plan_id", String(64), ForeignKey("plans.id"), primary_key=True)


search_plans = Table(
    "search_plans",
    metadata,
    _search_id(),
    _plan_id(),
    Index("ix_search_plans_plan_id", "plan_id"),
)
"""Plans that a result refers to."""

pins = Table(
    "pins",
    metadata,
    _plan_id(),
    Column("reason", String(200), primary_key=True),
    Column("created_at_us", BigInteger, nullable=False),
)
"""Plans that somebody needs beside the searches: a label, a link, a person's wish."""

tombstones = Table(
    "tombstones",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("gone_at_us", BigInteger, nullable=False),
)
"""Ids of searches and plans that were here."""

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("search_id", String(26), ForeignKey("searches.id", ondelete="CASCADE"), nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
    Index("ix_idempotency_keys_search_id", "search_id"),
)

profiles = Table(
    "profiles",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("document", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
)
"""Calibrated profiles."""

generations = Table(
    "generations",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
)
"""One row: a number that grows whenever something a client may have cached was edited or deleted."""
