"""Settings of the service, read from PLANNER_* environment variables; every limit is named with its unit."""

from __future__ import annotations

import os

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


def default_concurrency() -> int:
    """Searches run at once: all processors but one, at least one."""
    return max(1, (os.cpu_count() or 2) - 1)


class Settings(BaseSettings):
    """One value object; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="PLANNER_", extra="ignore", frozen=True)

    database_url: str = "sqlite:///planner.db"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    allow_remote: bool = False

    max_body_bytes: int = Field(default=8 * 2**20, ge=1024)
    max_body_depth: int = Field(default=64, ge=4, le=500)
    body_timeout_s: float = Field(default=60.0, gt=0)
    max_wait_s: float = Field(default=60.0, ge=0, le=60.0)

    max_queued_searches: int = Field(default=500, ge=1)
    concurrent_searches: int = Field(default_factory=default_concurrency, ge=1, le=64)
    search_max_time_s: float = Field(default=600.0, gt=0)
    search_kill_grace_s: float = Field(default=30.0, ge=0)
    search_max_cpu_s: int = Field(default=3600, ge=1)
    search_max_memory_bytes: int = Field(default=16 * 2**30, ge=2**28)
    search_max_skeletons: int = Field(default=40_000_000, ge=1)
    search_max_attempts: int = Field(default=3, ge=1, le=20)
    search_max_takeovers: int = Field(default=20, ge=0, le=10_000)
    cancel_grace_s: float = Field(default=0.5, ge=0)
    lease_s: float = Field(default=8.0, gt=0)
    heartbeat_s: float = Field(default=1.0, gt=0)

    store_max_age_days: float = Field(default=90.0, ge=0)
    store_max_bytes: int = Field(default=10 * 2**30, ge=0)

    evaluation_max_time_s: float = Field(default=60.0, gt=0)
    max_waiting_evaluations: int = Field(default=64, ge=1)

    max_event_streams: int = Field(default=100, ge=1)
    answer_cache_bytes: int = Field(default=64 * 2**20, ge=0)

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        """SQLite files and PostgreSQL only; PostgreSQL is always driven by psycopg."""
        for prefix in ("postgresql://", "postgres://"):
            if value.startswith(prefix):
                return "postgresql+psycopg://" + value.removeprefix(prefix)
        if value.startswith("postgresql+psycopg://"):
            return value
        path = value.removeprefix("sqlite:///")
        if path == value or path in ("", ":memory:"):
            raise ValueError("allowed: sqlite:///FILE (a file, not memory) or postgresql://...")
        return value
