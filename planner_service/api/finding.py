"""Reads searches and plans by id: the row, 404 for what never was, 410 for what was deleted or evicted."""

from __future__ import annotations

from planner_service.api.answers import Answer
from planner_service.api.responses import etag_of, gone, not_found
from planner_service.documents import search_document
from planner_service.services import Services
from planner_service.store.identifiers import is_plan_id, is_search_id
from planner_service.store.records import SearchRecord, StoredPlan


def find_search(services: Services, search_id: str) -> SearchRecord:
    """The search."""
    known = is_search_id(search_id)
    found = services.searches.get(search_id) if known else None
    if found is None:
        raise missing_search(services, search_id)
    return found


def missing_search(services: Services, search_id: str) -> Exception:
    """Why there is no such search."""
    was = is_search_id(search_id) and services.searches.gone(search_id)
    return gone("search") if was else not_found("search")


def find_plan(services: Services, plan_id: str) -> StoredPlan:
    """The plan."""
    known = is_plan_id(plan_id)
    found = services.plans.get(plan_id) if known else None
    if found is None:
        if known and services.plans.gone(plan_id):
            raise gone("plan")
        raise not_found("plan" if known else "plan; ids are 64 hexadecimal digits")
    return found


def search_answer(search: SearchRecord) -> Answer:
    """A search as it is sent."""
    body = search_document(search)
    return Answer(body, etag_of(body), f"/v1/searches/{search.id}")
