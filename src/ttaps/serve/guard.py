"""What every request and answer passes: who may ask, security headers, and the numbers of /metrics."""

import hmac
import re
import resource
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic_core import to_json
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ttaps.serve import LOOPBACK

COOKIE = "ttaps-token"
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
NO_TOKEN = "This service wants its token: open /?token=TOKEN in a browser, or send 'Authorization: Bearer TOKEN'."


def problem_json(status: int, detail: str) -> dict[str, Any]:
    """Return what an error says, as RFC 9457 has it."""
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error as an answer."""
    return Response(to_json(problem_json(status, detail)), status, headers, "application/problem+json")


class Guard:
    """Refuses strangers, adds headers to every answer, and counts."""

    def __init__(self, app: ASGIApp, token: str | None, origins: tuple[str, ...], counts: dict[str, float]) -> None:
        self.app, self.token, self.origins, self.counts = app, token, origins, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 499  # the client has gone before there was an answer

        async def send_safe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self.refuse(HTTPConnection(scope)) or self.app)(scope, receive, send_safe)
        finally:
            route = f'route="{getattr(scope.get("route"), "path", "")}"'
            self.counts[f'ttaps_requests_total{{{route},status="{status}"}}'] += 1
            self.counts[f"ttaps_request_seconds_count{{{route}}}"] += 1
            self.counts[f"ttaps_request_seconds_sum{{{route}}}"] += perf_counter() - began

    def refuse(self, request: HTTPConnection) -> Response | None:
        """Return the refusal of a request that another site's page sends, or that lacks the token."""
        host, origin, path = request.headers.get("host", ""), request.headers.get("origin", ""), request.scope["path"]
        if origin and origin not in (f"http://{host}", f"https://{host}", *self.origins):
            return problem(403, f"A page of {origin} may not use this service.")
        if self.token is None:  # a name of elsewhere that leads to this machine (DNS rebinding) is not ours
            ours = re.sub(r":\d+$", "", host).strip("[]")
            names = " and ".join(LOOPBACK)
            return None if ours in LOOPBACK else problem(403, f"This service answers to {names} only.")
        given = request.query_params.get("token", "")
        if path == "/" and self._right(given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict")
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        sent = bearer.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE, "")
        if path == "/health" or self._right(sent):
            return None
        if path == "/":
            return Response(f"<!doctype html><title>ttaps</title><p>{NO_TOKEN}", 401, media_type="text/html")
        return problem(401, NO_TOKEN, {"www-authenticate": "Bearer"})

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), str(self.token).encode())


def metrics(counts: dict[str, float], gauges: dict[str, float]) -> str:
    """Return all numbers as Prometheus reads them."""
    lines = []
    for family, kind in (("ttaps_requests", "counter"), ("ttaps_request_seconds", "summary")):
        lines.append(f"# TYPE {family}{'_total' * (kind == 'counter')} {kind}")
        lines += [f"{name} {value:g}" for name, value in sorted(counts.items()) if name.startswith(f"{family}_")]
    for name, value in {**gauges, "resident_memory_bytes": resident_memory()}.items():
        lines += [f"# TYPE ttaps_{name} gauge", f"ttaps_{name} {value}"]
    return "\n".join(lines) + "\n"


def resident_memory() -> int:
    """Return the bytes of memory that this process has; where the system does not tell, the most it ever had."""
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text("ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
