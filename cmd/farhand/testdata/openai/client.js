// OpenAI's own client, used as in its documentation. Prints a line for each thing it sees.
"use strict";
const OpenAI = require("openai");

const [, , baseURL, apiKey, session] = process.argv;
const options = { baseURL, apiKey, maxRetries: 0, timeout: 15000, defaultHeaders: { "X-Farhand-Session": session } };
const openai = new OpenAI(options);

const print = (what, ...rest) => console.log([what + ":", ...rest].join(" "));
const show = JSON.stringify;
const ask = (content) => [{ role: "user", content }];
const counted = ({ prompt_tokens, completion_tokens, total_tokens }) =>
  show({ prompt_tokens, completion_tokens, total_tokens });
const calls = (message) => show(message.tool_calls.map((c) => `${c.id} ${c.function.name} ${c.function.arguments}`));

const forecast = {
  type: "function",
  function: {
    name: "forecast",
    description: "what the weather will be",
    parameters: { type: "object", properties: { day: { type: "string" } }, required: ["day"] },
  },
};

async function models() {
  const ids = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  print("models", show(ids));
  print("model farhand", show((await openai.models.retrieve("farhand")).id));
}

async function streamed() {
  const stream = await openai.chat.completions.create({
    model: "farhand", messages: ask("live"), stream: true, stream_options: { include_usage: true },
  });
  let text = "", reason, usage;
  for await (const chunk of stream) {
    if (chunk.usage) usage = chunk.usage;
    for (const choice of chunk.choices) {
      if (choice.delta.content) {
        text += choice.delta.content;
        print("piece", show(choice.delta.content));
      }
      if (choice.finish_reason) reason = choice.finish_reason;
    }
  }
  print("streamed", show(text), reason, "usage", counted(usage));
}

async function whole() {
  const answer = await openai.chat.completions.create({ model: "farhand", messages: ask("at once") });
  const [choice] = answer.choices;
  print("whole", show(choice.message.content), choice.finish_reason, "usage", counted(answer.usage));
}

// ownTools offers a tool this program runs itself, beside those of the device.
async function ownTools() {
  const messages = ask("your own");
  const request = { model: "farhand", messages, tools: [forecast] };
  const [whole] = (await openai.chat.completions.create(request)).choices;
  print("own tools", show(whole.message.content), whole.finish_reason, calls(whole.message));
  const [choice] = (await openai.chat.completions.stream(request).finalChatCompletion()).choices;
  print("own tools, streamed", show(choice.message.content), choice.finish_reason, calls(choice.message));
  messages.push(choice.message, { role: "tool", tool_call_id: choice.message.tool_calls[0].id, content: "sunny" });
  const [last] = (await openai.chat.completions.create(request)).choices;
  print("with its result", show(last.message.content), last.finish_reason);
}

// listedTools hands on the tools that the gateway lists, as they are.
async function listedTools() {
  const list = await openai.get("/../api/tools/openai?session_id=" + session);
  print("listed", show(list.tools.map((tool) => tool.function.name)), show(list.output_schemas));
  const request = { model: "farhand", messages: ask("at once"), tools: list.tools };
  const [choice] = (await openai.chat.completions.create(request)).choices;
  print("handed on", choice.finish_reason, calls(choice.message));
}

// refused prints how a request fails.
async function refused(what, client, change, field) {
  try {
    await client.chat.completions.create({ model: "farhand", messages: ask("at once"), ...change });
    print(what, "it went well");
  } catch (e) {
    print(what, e.constructor.name, e.status, e[field]);
  }
}

async function main() {
  await models();
  await streamed();
  await whole();
  await ownTools();
  await listedTools();
  await refused("wrong key", new OpenAI({ ...options, apiKey: "wrong" }), {}, "code");
  await refused("wrong model", openai, { model: "no-such-model" }, "code");
  await refused("many choices", openai, { n: 2 }, "param");
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
