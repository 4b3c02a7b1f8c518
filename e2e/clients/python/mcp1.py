"""The Python SDK mcp 1.x: revisions up to 2025-11-25, always with the handshake."""

import asyncio
from contextlib import asynccontextmanager

import httpx
from mcp import ClientSession, types
from mcp.client.streamable_http import streamable_http_client

import steps


class Client:
    def __init__(self, session, revision, logged):
        self.session, self.revision, self.logged = session, revision, logged

    async def tools(self):
        await self.session.list_prompts()
        await self.session.list_resources()
        return [tool.name for tool in (await self.session.list_tools()).tools]

    async def call(self, name, arguments, progress=None):
        result = await self.session.call_tool(name, arguments, progress_callback=progress)
        return "".join(block.text for block in result.content), result.isError


async def sample(context, params):
    answer = types.TextContent(type="text", text=steps.ANSWER)
    return types.CreateMessageResult(role="assistant", model="test", content=answer)


@asynccontextmanager
async def connect(env):
    logged = asyncio.Queue()

    async def log(params):
        await logged.put(params.logger)

    timeout = httpx.Timeout(30, read=300)  # the SDK's own defaults
    async with (
        httpx.AsyncClient(headers=env.headers, verify=env.verify(), timeout=timeout) as http,
        streamable_http_client(env.url, http_client=http) as (read, write, _),
        ClientSession(read, write, sampling_callback=sample, logging_callback=log) as session,
    ):
        result = await session.initialize()
        yield Client(session, result.protocolVersion, logged)


steps.run(connect)
