// A program whose own tools and those of a device are asked for in one answer. Its requests go to the pods in turn, as
// behind a load balancer. Prints a line for each thing it sees.
"use strict";
const OpenAI = require("openai");

const [, , first, second, apiKey, session] = process.argv;
let requests = 0;
const openai = new OpenAI({
  baseURL: first, apiKey, maxRetries: 0, timeout: 15000, defaultHeaders: { "X-Farhand-Session": session },
  fetch: (url, init) => fetch(String(url).replace(first, requests++ % 2 ? second : first), init),
});

const forecast = {
  type: "function",
  function: {
    name: "forecast",
    parameters: { type: "object", properties: { day: { type: "string" } }, required: ["day"] },
    parse: JSON.parse,
    function: ({ day }) => `rain ${day}`,
  },
};

async function run(what, options) {
  const runner = openai.chat.completions.runTools({
    model: "farhand", messages: [{ role: "user", content: what }], tools: [forecast], ...options,
  });
  console.log(`${what}: ${JSON.stringify(await runner.finalContent())} in ${requests} requests`);
}

async function main() {
  await run("one after the other");
  await run("side by side");
  await run("streamed", { stream: true });
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
