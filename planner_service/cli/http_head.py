"""The HTTP server's protocol with a bound on the head of a request, which httptools itself reads without end.

What is no HTTP is refused here, before any application: with a problem document like everything else.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from planner_service.problems import MEDIA_TYPE, Problem

MAX_HEAD_BYTES = 2**16


class BoundedHead(HttpToolsProtocol):
    """Closes a connection whose request line and headers are longer than 64 KiB with 400."""

    _head_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.logger.warning("The head of a request was too large.")
            self.send_400_response(f"The head of the request is larger than {MAX_HEAD_BYTES} bytes.")

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser cannot read, and close."""
        body = Problem(400, "malformed_request", msg).text().encode()
        lines = [b"HTTP/1.1 400 Bad Request"]
        lines += [name + b": " + value for name, value in self.server_state.default_headers]
        lines += [b"content-type: " + MEDIA_TYPE.encode(), b"content-length: %d" % len(body), b"connection: close", b"", body]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next head may begin."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()
