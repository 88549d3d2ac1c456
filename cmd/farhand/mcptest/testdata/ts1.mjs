// Uses a device's tools with version 1 of the SDK for TypeScript: node ts1.mjs URL TOKEN
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { use } from './use.mjs';

const [url, token] = process.argv.slice(2);
const client = new Client({ name: 'ts1', version: '1.0.0' });
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}`, 'X-Test': 'ts1' } },
});
await client.connect(transport);
console.log('revision', transport.protocolVersion);
await use({
  list: async () => (await client.listTools()).tools,
  call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
});
await client.close();
