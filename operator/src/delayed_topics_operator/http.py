"""/livez, /readyz and /metrics."""

from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from delayed_topics_operator import metrics
from delayed_topics_operator.engine.lease import Elector
from delayed_topics_operator.runtime import Runtime

STUCK_SECONDS = 60.0
"""A runner that has not looked for work for this long is stuck; runners look every second. A pass that takes long, or waits for its slot,
does not count: Kafka or the API server is the cause, and a restart would not help."""


@dataclass
class Health:
    """`runtime`: None until this process acts as the operator."""

    elector: Elector
    runtime: Runtime | None = None


async def serve(health: Health, *, port: int) -> web.AppRunner:
    """Starts the server and returns when it listens; `cleanup()` stops it.

    An operator that waits for the lease of another one is ready. The chart ends the old pod before it starts the new one, but someone's own
    Deployment with a rolling update ends the old pod only when the new one is ready, and would otherwise wait forever. An operator that
    waits for the API server is alive, because a restart would not help.
    """

    async def livez(_: web.Request) -> web.Response:
        runners = health.runtime.runners.values() if health.runtime is not None else ()
        silent = max((runner.silent_seconds() for runner in runners), default=0.0)
        if silent > STUCK_SECONDS:
            return web.Response(status=500, text=f"the operator has not looked for work for {silent:.0f} s\n")
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        if health.elector.held_by:
            return web.Response(text=f"waiting for the lease, which {health.elector.held_by} holds\n")
        if health.runtime is None or not health.runtime.synced.is_set():
            return web.Response(status=503, text="the operator has not reached the API server yet\n")
        return web.Response(text="ok\n")

    async def exposition(_: web.Request) -> web.Response:
        if health.runtime is not None:
            health.runtime.count()
            for runner in health.runtime.runners.values():
                metrics.OVERDUE_SECONDS.labels(runner.controller.kind).set(runner.queue.overdue_seconds())
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()  # IPv4 and IPv6
    return runner
