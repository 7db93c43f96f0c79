"""Searches and plans.

Revision: 0001
Follows: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ANSWERING = sa.text("state IN ('queued', 'running', 'done')")


def upgrade() -> None:
    """Creates both tables and their indexes."""
    op.create_table(
        "searches",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("problem_digest", sa.String(64), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("finished_at_us", sa.BigInteger),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("proven", sa.Boolean, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("lease_owner", sa.String(64)),
        sa.Column("lease_expires_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_searches")),
        sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_searches_state")),
        sa.CheckConstraint("(state = 'running') = (lease_owner IS NOT NULL)", name=op.f("ck_searches_lease")),
    )
    op.create_index(
        "uq_searches_single_flight",
        "searches",
        ["request_digest"],
        unique=True,
        sqlite_where=ANSWERING,
        postgresql_where=ANSWERING,
    )
    op.create_index("ix_searches_problem_digest", "searches", ["problem_digest", "proven"])
    op.create_index("ix_searches_state", "searches", ["state", "created_at_us"])
    op.create_index("ix_searches_created_at_us", "searches", ["created_at_us", "id"])
    op.create_table(
        "plans",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
    )


def downgrade() -> None:
    """Drops both tables and everything in them."""
    op.drop_table("plans")
    op.drop_table("searches")
