// What an application would write against the client that openapi-generator makes for fetch.
import { CallsApi, Configuration, ToolsApi, type TurnEvent } from "./client";

declare const process: { argv: string[]; exit(code: number): never };

export function text(event: TurnEvent): string {
  switch (event.type) {
    case "chunk":
      return event.content;
    case "tool_result":
      return event.output;
    case "done":
      return event.fullResponse;
    default:
      return "";
  }
}

async function main(basePath: string, accessToken: string): Promise<void> {
  const configuration = new Configuration({ basePath, accessToken });
  const tools = new ToolsApi(configuration);
  const name: string = (await tools.listTools({ name: "echo" })).tools[0].name;
  const same: string = (await tools.listToolsForOpenAI({ name })).tools[0]._function.name;
  const calls = new CallsApi(configuration);
  const answer = await calls.callTool({ name: same, callRequest: { args: { text: "from fetch" } } });
  if (!("output" in answer) || !answer.output.includes("from fetch")) {
    throw new Error(JSON.stringify(answer));
  }
  console.log(answer.output);
}

main(process.argv[2], process.argv[3]).catch((err) => {
  console.error(err);
  process.exit(1);
});
