"""What every Python client does, step by step. The SDK behind it is an adapter:

    adapter(env)            an async context manager: entering connects
      .revision             the MCP revision it ended with
      .logged               an asyncio.Queue of the loggers of log notifications
      .tools()              the names of all tools
      .call(name, arguments, progress=None) -> (text, is_error)

Prints one JSON object a line: {"step": ..., "ok": ..., "detail": ...}.
"""

import asyncio
import json
import os
import ssl
import sys

PATIENCE = 30  # seconds for a step
MODERN = "2026-07-28"  # the first revision without a handshake
ANSWER = "forty-two"  # what the client's model says to whatever it is asked


class Env:
    """Where to connect and what to try, from the environment."""

    def __init__(self):
        self.url = os.environ["ARBITER_URL"]
        self.era = os.environ.get("ARBITER_ERA", "")  # "", "legacy" or "auto"
        self.denied_tool = os.environ.get("ARBITER_DENIED_TOOL", "")
        self.cut = os.environ.get("ARBITER_CUT", "") == "1"
        self.headers = {}
        if path := os.environ.get("ARBITER_HEADER_FILE"):
            with open(path, encoding="ascii") as lines:
                for line in lines:
                    name, _, value = line.partition(":")
                    if value:
                        self.headers[name.strip()] = value.strip()

    def verify(self):
        """The TLS settings: the given CA and no other."""
        ca = os.environ.get("ARBITER_CA")
        return ssl.create_default_context(cafile=ca) if ca else True


class Failed(Exception):
    """A step did not do what it should have done."""


def report(step, ok, detail):
    print(json.dumps({"step": step, "ok": ok, "detail": str(detail)}), flush=True)


def reason(err):
    """The innermost errors of an exception group, else the error itself."""
    if isinstance(err, BaseExceptionGroup):
        return "; ".join(reason(inner) for inner in err.exceptions)
    return f"{type(err).__name__}: {err}"


async def step(name, action):
    """Run one step; whatever it raises is its failure, and the next one still runs."""
    try:
        detail = await asyncio.wait_for(action, PATIENCE)
    except Exception as err:  # noqa: BLE001 - every failure is reported
        report(name, False, reason(err))
    else:
        report(name, True, detail)


def expect(got, want):
    if got != want:
        raise Failed(f"got {got!r}, want {want!r}")
    return got


async def said(client, name, arguments, want):
    text, is_error = await client.call(name, arguments)
    if is_error:
        raise Failed(f"tool error: {text}")
    return expect(text, want)


async def lists(client):
    names = sorted(await client.tools())
    if "echo" not in names:
        raise Failed(f"no echo among {names}")
    return ",".join(names)


async def progress(client):
    seen = []

    async def on_progress(value, total, message):
        seen.append(value)

    await client.call("slow", {"steps": 3, "delay_ms": 50}, on_progress)
    return expect([float(value) for value in seen], [1.0, 2.0, 3.0])


async def ticks(client, count):
    """Wait for log notifications of the clock, which come on the GET stream."""
    for _ in range(count):
        logger = await client.logged.get()
        expect(logger, "clock")
    return f"{count} notifications"


async def notifications(client):
    await client.call("clock", {"ticks": 3, "interval_ms": 50})
    return await ticks(client, 3)


async def denied(client, tool):
    text, is_error = await client.call(tool, {"text": "x"})
    if not is_error or not text:
        raise Failed(f"not denied: {text!r}")
    return text


async def after_cut(client):
    """The session goes on: calls are answered, and the GET stream is opened again.

    A call may meet the connection that was cut with the stream; the next one must not.
    """
    try:
        await said(client, "echo", {"text": "still here"}, "still here")
        lost = "no call lost"
    except Exception as err:  # noqa: BLE001 - the second call decides
        lost = f"one call lost: {reason(err)}"
        await said(client, "echo", {"text": "still here"}, "still here")
    while True:
        await client.call("clock", {"ticks": 2, "interval_ms": 50})
        try:
            return f"{await asyncio.wait_for(ticks(client, 1), 2)}, {lost}"
        except TimeoutError:
            continue


async def walk(client, env):
    await step("list", lists(client))
    await step("echo", said(client, "echo", {"text": "hello"}, "hello"))
    await step("add", said(client, "add", {"a": 2, "b": 3}, "5"))
    await step("progress", progress(client))
    await step("ask", said(client, "ask", {"question": "why?"}, f"the model says: {ANSWER}"))
    if env.denied_tool:
        await step("denied", denied(client, env.denied_tool))
        await step("after-denied", said(client, "echo", {"text": "again"}, "again"))
    if client.revision >= MODERN:
        return
    await step("notifications", notifications(client))
    if env.cut:
        report("ready-to-cut", True, "")
        await asyncio.to_thread(sys.stdin.readline)
        await step("after-cut", after_cut(client))


async def main(adapter):
    env = Env()
    connected = False
    try:
        async with adapter(env) as client:
            connected = True
            report("connect", True, client.revision)
            await walk(client, env)
    except Exception as err:  # noqa: BLE001 - every failure is reported
        report("close" if connected else "connect", False, reason(err))
        sys.exit(1)
    report("close", True, "")


def run(adapter):
    asyncio.run(main(adapter))
