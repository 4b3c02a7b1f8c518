"""fastmcp 4.x: by default it probes for 2026-07-28 and falls back to the handshake."""

import asyncio
from contextlib import asynccontextmanager

from fastmcp import Client as SDKClient
from fastmcp.client.transports import StreamableHttpTransport

import steps


class Client:
    def __init__(self, sdk, logged):
        self.sdk, self.revision, self.logged = sdk, sdk.protocol_version, logged

    async def tools(self):
        await self.sdk.list_prompts()
        await self.sdk.list_resources()
        return [tool.name for tool in await self.sdk.list_tools()]

    async def call(self, name, arguments, progress=None):
        result = await self.sdk.call_tool(name, arguments, progress_handler=progress, raise_on_error=False)
        return "".join(block.text for block in result.content), result.is_error


async def sample(messages, params, context):
    return steps.ANSWER


@asynccontextmanager
async def connect(env):
    logged = asyncio.Queue()

    async def log(message):
        await logged.put(message.logger)

    sdk = SDKClient(
        StreamableHttpTransport(env.url, headers=env.headers, verify=env.verify()),
        sampling_handler=sample,
        log_handler=log,
        mode=env.era or "auto",
    )
    async with sdk:
        yield Client(sdk, logged)


steps.run(connect)
