// The TypeScript SDK @modelcontextprotocol/sdk 1.x: revisions up to 2025-11-25,
// always with the handshake.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, LoggingMessageNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { ANSWER, run } from './steps.mjs';

await run(async (env, hooks) => {
  const client = new Client({ name: 'e2e-sdk1', version: '1' }, { capabilities: { sampling: {} } });
  client.setRequestHandler(CreateMessageRequestSchema, async () => ({
    role: 'assistant',
    model: 'test',
    content: { type: 'text', text: ANSWER },
  }));
  client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => hooks.logged(n.params.logger));
  const transport = new StreamableHTTPClientTransport(env.url, { requestInit: { headers: env.headers } });
  await client.connect(transport);
  return {
    revision: transport.protocolVersion,
    async tools() {
      await client.listPrompts();
      await client.listResources();
      return (await client.listTools()).tools.map((tool) => tool.name);
    },
    async call(name, args, onprogress) {
      const result = await client.callTool({ name, arguments: args }, undefined, { onprogress });
      return { text: result.content.map((block) => block.text).join(''), isError: result.isError ?? false };
    },
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  };
});
