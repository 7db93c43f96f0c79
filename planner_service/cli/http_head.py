"""The HTTP server's protocol with a bound on the head of a request, which httptools itself reads without end."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

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

    def on_headers_complete(self) -> None:
        """The head has ended."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next head may begin."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()
