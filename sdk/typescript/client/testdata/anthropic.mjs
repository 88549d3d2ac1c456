// An agent with Anthropic's client. Its tools are those of one device.
import Anthropic from "@anthropic-ai/sdk";
import { Farhand } from "@farhand/client";
import { farhandTools } from "@farhand/client/anthropic";

const [device, question] = process.argv.slice(2);
const farhand = new Farhand(process.env.FARHAND_URL, { token: process.env.FARHAND_TOKEN });
const runner = new Anthropic().beta.messages.toolRunner({
  model: process.env.MODEL,
  max_tokens: 1000,
  stream: true,
  thread: false, // the scripted server holds no conversations
  messages: [{ role: "user", content: question }],
  tools: await farhandTools(farhand, { device })
});
for await (const stream of runner) {
  const { content } = await stream.finalMessage();
  for (const block of content) {
    if (block.type === "tool_use") console.log(`→ ${block.name} ${JSON.stringify(block.input)}`);
    if (block.type === "text") console.log(block.text);
  }
}
