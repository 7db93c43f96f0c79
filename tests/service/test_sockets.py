"""What clients do below HTTP: heads without end, bodies that never come, many requests at once, connections that are dropped."""

from __future__ import annotations

import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import pytest

from planner_service.cli.http_head import MAX_HEAD_BYTES

JSON = b"Content-Type: application/json\r\n"
POST = b"POST /v1/searches HTTP/1.1\r\nHost: x\r\n" + JSON


def connect(url):
    """A connection to the server."""
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname, parts.port))
    made.settimeout(15)
    return made


def answer(url, *pieces, silence_s=1.0):
    """Everything that comes back until the server closes, or is silent."""
    received = b""
    with connect(url) as made:
        try:
            for piece in pieces:
                made.sendall(piece)
            while chunk := made.recv(65536):
                received += chunk
                made.settimeout(silence_s)
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass
    return received


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2 * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2 * MAX_HEAD_BYTES,
        b"GET /" + b"a" * 2 * MAX_HEAD_BYTES,
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % number for number in range(20_000)),
    ],
)
def test_heads_are_bounded(live_server, head):
    """400 or a closed connection while they are still being sent; the server goes on."""
    pieces = [head[start : start + 16_384] for start in range(0, len(head), 16_384)]
    received = answer(live_server, *pieces)
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert httpx.get(f"{live_server}/healthz", trust_env=False).status_code == 200


def test_usual_heads_pass(live_server):
    """Also several on one connection, each with a body in between."""
    one = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 30_000 + b"\r\n\r\n"
    body = b'{"a": "' + b"x" * 40_000 + b'"}'
    two = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert answer(live_server, *([one, two] * 4), silence_s=10.0).count(b"HTTP/1.1 ") == 8


@pytest.mark.parametrize("extra", [b"Content-Length: 9000000\r\nExpect: 100-continue\r\n", b"Content-Length: 99999999999999\r\n"])
def test_too_much_is_refused_before_it_comes(live_server, extra):
    """413 at once for a client that waits to be asked, or announces what nobody would read."""
    began_s = time.monotonic()
    received = answer(live_server, POST + extra + b"\r\n")
    assert received.startswith(b"HTTP/1.1 413")
    assert time.monotonic() - began_s < 10


def test_a_body_that_is_asked_for(live_server):
    """100, then the answer."""
    received = answer(live_server, POST + b"Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", b"{}")
    assert received.startswith(b"HTTP/1.1 100")
    assert b"HTTP/1.1 422" in received


def test_what_is_no_clear_request(live_server):
    """Two lengths, a length beside chunks: 400, nothing is smuggled."""
    for extra in (b"Content-Length: 2\r\nContent-Length: 3\r\n", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"):
        received = answer(live_server, POST + extra + b"\r\n{}GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"content-type: application/problem+json" in head
        assert json.loads(body)["code"] == "malformed_request"


def test_clients_that_hang_do_not_hold_others(live_server):
    """Two hundred half requests are open; everybody else is served, also after they are dropped."""
    hanging = [connect(live_server) for _ in range(200)]
    for number, made in enumerate(hanging):
        made.sendall(POST + b"Content-Length: 5000\r\n\r\n{" if number % 2 else b"GET /heal")
    for _ in range(2):
        assert httpx.get(f"{live_server}/readyz", trust_env=False, timeout=10).status_code == 200
        for made in hanging:
            made.close()


def test_no_upgrade(live_server):
    """A WebSocket handshake is answered as the plain request it also is."""
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    assert answer(live_server, head + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").startswith(b"HTTP/1.1 200")
