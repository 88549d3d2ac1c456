// What programs ask of an answer beside its text. Prints a line for each thing it sees.
"use strict";
const OpenAI = require("openai");

const [, , baseURL, apiKey, session] = process.argv;
const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 15000, defaultHeaders: { "X-Farhand-Session": session } });
const print = (what, ...rest) => console.log([what + ":", ...rest].join(" "));
const show = JSON.stringify;

const answer = {
  type: "json_schema",
  json_schema: {
    name: "reading", strict: true,
    schema: { type: "object", properties: { reading: { type: "string" } }, required: ["reading"], additionalProperties: false },
  },
};
const forecast = { type: "function", function: { name: "forecast", strict: true, parameters: { type: "object", properties: {}, additionalProperties: false } } };
const ask = (content, more) => ({ model: "farhand", messages: [{ role: "user", content }], ...more });

async function main() {
  const parsed = await openai.chat.completions.parse(ask("as JSON", { response_format: answer }));
  print("parsed", show(parsed.choices[0].message.parsed));
  const streamed = await openai.chat.completions.stream(ask("as JSON", { response_format: answer })).finalChatCompletion();
  print("streamed", streamed.choices[0].message.content);

  const none = await openai.chat.completions.create(ask("what can you call?", { tools: [forecast], tool_choice: "none" }));
  print("none", show(none.choices[0].message.content), none.choices[0].finish_reason);
  const required = await openai.chat.completions.create(ask("what must you call?", { tools: [forecast], tool_choice: "required" }));
  print("required", required.choices[0].message.tool_calls[0].function.name, required.choices[0].finish_reason);
  const named = { type: "function", function: { name: "forecast" } };
  const chosen = await openai.chat.completions.create(ask("what must you call?", { tools: [forecast], tool_choice: named }));
  print("named", chosen.choices[0].message.tool_calls[0].function.name, chosen.choices[0].finish_reason);

  const image = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=", detail: "low" } };
  const seen = await openai.chat.completions.create(ask([{ type: "text", text: "what is this?" }, image]));
  print("image", show(seen.choices[0].message.content));
  const options = { seed: 7, top_p: 0.5, presence_penalty: 1, frequency_penalty: 1, reasoning_effort: "low", parallel_tool_calls: false, metadata: { a: "b" }, logit_bias: { 5: -1 } };
  print("options", show((await openai.chat.completions.create(ask("what were you asked?", options))).choices[0].message.content));

  const refused = await openai.chat.completions.parse(ask("do harm", { response_format: answer }));
  print("refused", show(refused.choices[0].message.refusal), show(refused.choices[0].message.content), refused.choices[0].finish_reason);
  const stream = await openai.chat.completions.stream(ask("do harm")).finalChatCompletion();
  print("refused, streamed", show(stream.choices[0].message.refusal), stream.choices[0].finish_reason);

  for (const field of [{ logprobs: true }, { top_k: 4 }, { store: true }, { audio: { voice: "alloy", format: "mp3" } }]) {
    try {
      await openai.chat.completions.create(ask("hello", field));
      print(show(field), "it went well");
    } catch (e) {
      print(show(field), e.constructor.name, e.status, e.param);
    }
  }
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
