"""The Python SDK mcp 2.x: by default it probes for 2026-07-28 and falls back to the handshake."""

import asyncio
from contextlib import asynccontextmanager

import httpx2
from mcp import Client as SDKClient
from mcp import types
from mcp.client.streamable_http import streamable_http_client

import steps


class Client:
    def __init__(self, sdk, logged):
        self.sdk, self.revision, self.logged = sdk, sdk.protocol_version, logged

    async def tools(self):
        await self.sdk.list_prompts()
        await self.sdk.list_resources()
        return [tool.name for tool in (await self.sdk.list_tools()).tools]

    async def call(self, name, arguments, progress=None):
        result = await self.sdk.call_tool(name, arguments, progress_callback=progress)
        return "".join(block.text for block in result.content), result.is_error


async def sample(context, params):
    answer = types.TextContent(type="text", text=steps.ANSWER)
    return types.CreateMessageResult(role="assistant", model="test", content=answer)


@asynccontextmanager
async def connect(env):
    logged = asyncio.Queue()

    async def log(params):
        await logged.put(params.logger)

    timeout = httpx2.Timeout(30, read=300)  # the SDK's own defaults
    async with httpx2.AsyncClient(headers=env.headers, verify=env.verify(), timeout=timeout) as http:
        sdk = SDKClient(
            streamable_http_client(env.url, http_client=http),
            sampling_callback=sample,
            logging_callback=log,
            mode=env.era or "auto",
        )
        async with sdk:
            yield Client(sdk, logged)


steps.run(connect)
