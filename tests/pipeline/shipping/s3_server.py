"""A way to an S3 server that fails as a store does: it is busy, it refuses, it does what was requested and does not say so.

    with s3_server() as server:
        server.fails_with = 503            # of each request; None: none fails
        server.environ                     # what a command needs to find it
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from klamm.tests.pipeline.object_stores import moto, use

ERROR = "<Error><Code>{}</Code><Message>refused</Message></Error>"
NO_ACCESS = b"<Error><Code>InvalidAccessKeyId</Code><Message>The AWS Access Key Id does not exist in our records.</Message></Error>"


class S3Server:
    """The server, as a client finds it."""

    def __init__(self, url: str) -> None:
        self.fails_with: int | None = None
        """The status of each response; 0: the connection is closed when the request was read and passed on, -1: before it is passed on."""
        self.refuses: tuple[tuple[str, ...], int, str] | None = None
        """Methods whose requests get this status with this code of S3."""
        self.before_put: Callable[[str], None] = lambda _: None
        self.after_put: Callable[[str], None] = lambda _: None
        """Called with the path before a PUT is passed on, and before its response is."""
        self.requests: Counter[str] = Counter()
        """Requests by method; those that list are LIST."""
        self.puts: list[str] = []
        """The paths that were put, also those of requests that failed."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, int(url.rpartition(":")[2])))
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        use(self.url, variables.__setitem__)
        return variables

    def close(self) -> None:
        """Nothing listens any more."""
        self._http.shutdown()
        self._http.server_close()


def _handler(server: S3Server, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.requests["LIST" if "list-type" in self.path else self.command] += 1
            if self.command == "PUT":
                server.puts.append(self.path)
                server.before_put(self.path)
            if server.refuses is not None and self.command in server.refuses[0]:
                self._fail(server.refuses[1], ERROR.format(server.refuses[2]).encode())
                return
            status = server.fails_with
            if status is not None and status != 0:
                self._fail(status)
                return
            upstream = http.client.HTTPConnection("127.0.0.1", port)
            upstream.request(self.command, self.path, body, dict(self.headers))
            response = upstream.getresponse()
            data = response.read()
            if self.command == "PUT":
                server.after_put(self.path)
            if status == 0:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(name, value)
            if self.command == "HEAD":
                self.send_header("Content-Length", response.getheader("Content-Length", "0"))
            else:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _fail(self, status: int, content: bytes = b"") -> None:
            self.close_connection = True
            if status < 0:
                self.connection.close()
                return
            self.send_response(status)
            data = content or (NO_ACCESS if status == 403 else b"")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class names it
            """Nothing: each request would be a line."""

    return Handler


@contextmanager
def s3_server(url: str | None = None) -> Iterator[S3Server]:
    """A server before that with this URL, which has an empty bucket; by default moto's."""
    with ExitStack() as stack:
        server = S3Server(stack.enter_context(moto()) if url is None else url)
        stack.callback(server.close)
        yield server
