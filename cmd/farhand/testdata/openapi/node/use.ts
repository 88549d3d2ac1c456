// What an application would write against the types of schema.d.ts.
import type { components, operations } from "./schema";

type Schemas = components["schemas"];

const request: Schemas["CallRequest"] = { args: { text: "hello", nested: { n: [1, 2] } } };
const durable: Schemas["CallRequest"] = { args: {}, mode: "async", idempotency_key: "k", target: { labels: { room: "kitchen" } } };
const message: Schemas["MessageRequest"] = { content: "which machine am I on" };

export function show(list: Schemas["ToolList"], groups: Schemas["ToolGroupList"]): string[] {
  const tools = list.tools.map((row) => `${row.name} of ${row.source} ${row.schema_hash}`);
  return tools.concat(groups.tools.map((row) => `${row.name} ${row.sessions}`));
}

export function outcome(answer: Schemas["CallAnswer"], problem: Schemas["Problem"]): string {
  return answer.success ? answer.output : `${problem.code} ${problem.dispatched ?? ""} ${problem.detail}`;
}

export function text(event: Schemas["TurnEvent"]): string {
  switch (event.type) {
    case "chunk":
      return event.content;
    case "tool_result":
      return event.output;
    case "done":
      return event.full_response;
    default:
      return "";
  }
}

type Body = NonNullable<operations["callTool"]["requestBody"]>["content"]["application/json"];
export const bodies: Body[] = [request, durable];
export const messages = [message];

// The path says what the rows look like.
type Answer<Operation extends keyof operations> =
  operations[Operation] extends { responses: { 200: { content: { "application/json": infer A } } } } ? A : never;
export function first(list: Answer<"listTools">, forOpenAI: Answer<"listToolsForOpenAI">): string {
  return list.tools[0].name + forOpenAI.tools[0].function.name;
}
