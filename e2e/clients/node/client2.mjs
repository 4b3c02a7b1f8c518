// The TypeScript SDK @modelcontextprotocol/client 2.x: by default the handshake;
// with versionNegotiation "auto" it probes for 2026-07-28 and falls back.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { ANSWER, run } from './steps.mjs';

await run(async (env, hooks) => {
  const client = new Client(
    { name: 'e2e-client2', version: '1' },
    {
      capabilities: { sampling: {} },
      ...(env.era ? { versionNegotiation: { mode: env.era } } : {}),
    },
  );
  client.setRequestHandler('sampling/createMessage', async () => ({
    role: 'assistant',
    model: 'test',
    content: { type: 'text', text: ANSWER },
  }));
  client.setNotificationHandler('notifications/message', (n) => hooks.logged(n.params.logger));
  const transport = new StreamableHTTPClientTransport(env.url, { requestInit: { headers: env.headers } });
  await client.connect(transport);
  return {
    revision: client.getNegotiatedProtocolVersion(),
    async tools() {
      await client.listPrompts();
      await client.listResources();
      return (await client.listTools()).tools.map((tool) => tool.name);
    },
    async call(name, args, onprogress) {
      const result = await client.callTool({ name, arguments: args }, { onprogress });
      return { text: result.content.map((block) => block.text).join(''), isError: result.isError ?? false };
    },
    async close() {
      await transport.terminateSession();
      await client.close();
    },
  };
});
