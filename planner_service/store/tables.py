"""The tables, as SQLAlchemy metadata; the migrations produce exactly these (a test compares them on both databases)."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, MetaData, String, Table, Text, text

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
    CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name="state"),
    CheckConstraint("(state = 'running') = (lease_owner IS NOT NULL)", name="lease"),
    Index("uq_searches_single_flight", "request_digest", unique=True, sqlite_where=ANSWERING_SQL, postgresql_where=ANSWERING_SQL),
    Index("ix_searches_problem_digest", "problem_digest", "proven"),
    Index("ix_searches_state", "state", "created_at_us"),
    Index("ix_searches_created_at_us", "created_at_us", "id"),
)

plans = Table(
    "plans",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("body", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("created_at_us", BigInteger, nullable=False),
)
