"""What a client was told about its searches, and the checks that nothing it is told later contradicts it."""

from __future__ import annotations

import orjson

from planner_service.store.checkup import findings
from planner_service.store.events import EventStore

TERMINAL = ("done", "failed", "cancelled")
TOLERANCE = 1e-12


class Witness:
    """Remembers acknowledged searches, the events seen of each, and the bytes of each end."""

    def __init__(self, engine):
        self._events = EventStore(engine)
        self._engine = engine
        self.accepted = {}
        self.ends = {}
        self.seen = {}
        self.progress = {}
        self.ended_in = {}

    def accept(self, name, document):
        """A client was given this id for this problem; an equal problem gets the same id."""
        assert self.accepted.setdefault(name, document["id"]) == document["id"], f"{name}: another id"

    def unended(self):
        """Ids that the client has not seen end."""
        return [search_id for search_id in self.accepted.values() if search_id not in self.ends]

    def look(self, search_id, document, content):
        """A client reads a search: it exists, and an end once seen stays byte for byte."""
        if document["state"] in TERMINAL:
            assert self.ends.setdefault(search_id, content) == content, f"{search_id}: its end has changed"
        else:
            assert search_id not in self.ends, f"{search_id}: was {self.ends[search_id][:80]}, is {document['state']}"
        self._not_worse("row", search_id, document["progress"])

    def follow(self):
        """Reads on in the log of every search: numbers rise, progress never gets worse, one end and nothing after it."""
        for search_id in self.accepted.values():
            for event in self._events.after(search_id, self.seen.get(search_id, 0), 10_000):
                assert event.seq > self.seen.get(search_id, 0)
                self.seen[search_id] = event.seq
                assert search_id not in self.ended_in, f"{search_id}: an event after its end"
                data = orjson.loads(event.data)
                if event.kind != "state":
                    self._not_worse("log", search_id, data)
                elif data["state"] in TERMINAL:
                    self.ended_in[search_id] = data["state"]

    def check_database(self):
        """Nothing is damaged."""
        found = findings(self._engine)
        assert not found, found

    def _not_worse(self, source, search_id, progress):
        """Closed cells and bound never fall, the incumbent never rises; the log is read later than the row."""
        before = self.progress.get((source, search_id))
        if before is not None:
            assert progress["done"] >= before["done"], (search_id, before, progress)
            for name, sign in (("incumbent", 1.0), ("bound", -1.0)):
                if before[name] is not None:
                    assert progress[name] is not None, (search_id, before, progress)
                    worse = sign * (progress[name] - before[name])
                    assert worse <= TOLERANCE * abs(before[name]), (search_id, before, progress)
        self.progress[source, search_id] = progress
