// An MCP client. The gateway is an MCP server with the tools of one device, so this needs no package of Farhand.
//
//   npm install
//   FARHAND_URL=… FARHAND_TOKEN=… node agent.js phone                        lists the tools
//   FARHAND_URL=… FARHAND_TOKEN=… node agent.js phone lamp '{"on":true}'     calls one
//
// The first argument is the id of the device's session. Hosts of models need only the URL and the token.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [session, tool, args = "{}"] = process.argv.slice(2);
const url = new URL(`/mcp/sessions/${encodeURIComponent(session)}`, process.env.FARHAND_URL ?? "http://127.0.0.1:8080");
const headers = { Authorization: `Bearer ${process.env.FARHAND_TOKEN}` };

const client = new Client({ name: "agent-mcp-node", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
try {
  if (!tool) {
    const { tools } = await client.listTools();
    for (const { name, description } of tools) console.log(`${name}: ${description}`);
  } else {
    const result = await client.callTool({ name: tool, arguments: JSON.parse(args) }, undefined, {
      onprogress: ({ progress, total, message }) => console.log(`… ${message ?? ""} ${progress}/${total ?? "?"}`)
    });
    for (const { type, text, mimeType } of result.content) console.log(text ?? `[${type}, ${mimeType}]`);
    if (result.isError) process.exitCode = 1;
  }
} finally {
  await client.close();
}
