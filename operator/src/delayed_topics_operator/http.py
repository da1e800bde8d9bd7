"""/livez, /readyz and /metrics."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from delayed_topics_operator import metrics
from delayed_topics_operator.runtime import Runtime

STUCK_SECONDS = 120.0
"""A pass that is due and has not begun for this long means that the operator no longer works."""


async def serve(runtime: Runtime) -> web.AppRunner:
    """Returns when it listens; `cleanup()` ends it."""

    async def livez(_: web.Request) -> web.Response:
        late = max(runner.queue.overdue_seconds() for runner in runtime.runners.values())
        metrics.QUEUED.set(late)
        if late > STUCK_SECONDS:
            return web.Response(status=500, text=f"a pass is due for {late:.0f} s and has not begun\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if not runtime.synced.is_set():
            return web.Response(status=503, text="the API server was not reached yet\n")
        return web.Response(text="ok\n")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", runtime.settings.http_port).start()
    return runner
