"""Reads the documents of requests: small bodies in a thread of the server, large ones in a child process kept for that."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from anyio import to_thread

from planner_service.api.bodies import SMALL_BODY_BYTES
from planner_service.api.desk import Desk
from planner_service.reading import checked_problem, evaluation_parts, json_object_of, unread_job
from planner_service.services import Services
from planner_service.solver_port import Checked, Document

LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class ServerProfiles:
    """The calibrated profiles in the store."""

    def __init__(self, services: Services) -> None:
        self._store = services.profiles

    def document(self, name: str) -> Document | None:
        """See `Profiles`."""
        stored = self._store.get(name)
        return None if stored is None else orjson.loads(stored.document)

    def names(self) -> tuple[str, ...]:
        """See `Profiles`."""
        return tuple(entry.name for entry in self._store.all())


async def read_problem(desk: Desk, raw: bytes) -> tuple[str, Checked]:
    """The problem as it is stored (on one line) and what the solver says of it; raises its refusals."""
    if len(raw) <= SMALL_BODY_BYTES:
        return await to_thread.run_sync(_read_problem, desk.services, raw, limiter=desk.thinking)
    job = await to_thread.run_sync(_unread, desk.services, "problem", raw)
    answer = await asyncio.wrap_future(desk.reader.submit({"kind": "check", **job}))
    text = answer["document"] or raw.translate(LINE_ENDS).decode()
    return text, Checked(**answer["checked"])


async def evaluation_job(desk: Desk, raw: bytes) -> dict[str, Any]:
    """What the evaluator's child is asked."""
    if len(raw) <= SMALL_BODY_BYTES:
        problem, layout = await to_thread.run_sync(_evaluation, desk.services, raw, limiter=desk.thinking)
        return {"kind": "evaluate", "problem": problem, "layout": layout}
    return {"kind": "evaluate_unread", **await to_thread.run_sync(_unread, desk.services, "document", raw)}


async def document_job(desk: Desk, kind: str, member: str, raw: bytes, infinities: bool = False) -> dict[str, Any]:
    """A job of this kind whose `member` is the body."""
    depth = desk.services.settings.max_body_depth
    if len(raw) <= SMALL_BODY_BYTES:
        return {"kind": kind, member: await to_thread.run_sync(json_object_of, raw, depth, infinities, limiter=desk.thinking)}
    return {"kind": kind, **await to_thread.run_sync(unread_job, member, raw, depth, infinities)}


def _read_problem(services: Services, raw: bytes) -> tuple[str, Checked]:
    sent = json_object_of(raw, services.settings.max_body_depth)
    problem, checked = checked_problem(services.solver, sent, ServerProfiles(services))
    return raw.translate(LINE_ENDS).decode() if problem is sent else orjson.dumps(problem).decode(), checked


def _evaluation(services: Services, raw: bytes) -> tuple[Document, Document]:
    document = json_object_of(raw, services.settings.max_body_depth)
    return evaluation_parts(services.solver, document, ServerProfiles(services))


def _unread(services: Services, member: str, raw: bytes) -> dict[str, Any]:
    texts = {entry.name: entry.document for entry in services.profiles.all()}
    return {**unread_job(member, raw, services.settings.max_body_depth), "profiles": texts}
