// An MCP server over standard input and output, with one tool. OpenClaw's node hosts publish it as a plug-in tool.
import readline from 'node:readline';

const greet = {
  name: 'greet',
  description: 'Greets somebody.',
  inputSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
};

function answer({ method, params }) {
  switch (method) {
    case 'initialize':
      return {
        protocolVersion: params.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: 'greeter', version: '1' },
      };
    case 'tools/list':
      return { tools: [greet] };
    case 'tools/call':
      return { content: [{ type: 'text', text: `hello ${params.arguments.name}` }] };
    default:
      return {};
  }
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const message = JSON.parse(line);
  if (message.id !== undefined) {
    console.log(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: answer(message) }));
  }
});
