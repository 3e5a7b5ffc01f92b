"""A stand-in for a site on the network: a file, given whole, in part, broken off or not at all."""

from __future__ import annotations

import http.server
import re
import threading
from dataclasses import dataclass, field


@dataclass
class Site:
    """``breaks``: after how many bytes each answer ends, one for each request to come; then none does. ``ranges``:
    whether parts can be asked for. ``status``: of every answer, if it is an error."""

    body: bytes
    breaks: list[int] = field(default_factory=list)
    ranges: bool = True
    status: int = 200
    asked: list[str] = field(default_factory=list)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: HttpServer

    def do_GET(self) -> None:
        site = self.server.site
        asked = self.headers.get("Range", "")
        site.asked.append(asked)
        if site.status != 200:
            self.send_error(site.status)
            return
        found = re.fullmatch(r"bytes=(\d+)-", asked)
        start = int(found.group(1)) if found and site.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(site.body) - start))
        self.end_headers()
        end = start + site.breaks.pop(0) if site.breaks else len(site.body)
        self.wfile.write(site.body[start:end])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


class HttpServer(http.server.ThreadingHTTPServer):
    """Serves a site on a port of its own until it is closed."""

    daemon_threads = True

    def __init__(self, site: Site) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site
        self.address = f"http://127.0.0.1:{self.server_address[1]}/set.tar"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
