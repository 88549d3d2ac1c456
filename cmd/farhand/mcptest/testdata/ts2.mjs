// Uses a device's tools with version 2 of the SDK for TypeScript: node ts2.mjs URL TOKEN REVISION
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { use } from './use.mjs';

const [url, token, revision] = process.argv.slice(2);
let changed = () => {};
const modern = revision === '2026-07-28';
const client = new Client({ name: 'ts2', version: '1.0.0' }, {
  versionNegotiation: { mode: modern ? { pin: revision } : 'legacy' },
  ...(modern ? { listChanged: { tools: { onChanged: (error, tools) => changed(error, tools) } } } : {}),
});
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}`, 'X-Test': 'ts2-' + revision } },
});
await client.connect(transport);
console.log('revision', modern ? client.getDiscoverResult() && revision : transport.protocolVersion);
await use({
  list: async () => (await client.listTools({}, { cacheMode: 'bypass' })).tools,
  call: (name, args, options) => client.callTool({ name, arguments: args }, options),
  // The tools of the listing after a change, or nothing where the protocol has no notice of it without a session.
  changed: modern ? () => new Promise((resolve, reject) => {
    changed = (error, tools) => (error ? reject(error) : tools.length === 0 && resolve(tools));
  }) : undefined,
});
await client.close();
