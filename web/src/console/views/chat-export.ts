import type { Transcript } from "../../api/types";
import { download } from "../../ui/download";
import { words } from "../../words/en";

const text = words.chat;

export function exportJSON(transcript: Transcript): void {
  download(nameOf(transcript) + ".json", "application/json", JSON.stringify(transcript, null, 2) + "\n");
}

export function exportMarkdown(transcript: Transcript): void {
  const names: Record<string, string> = { user: text.you, system: text.system };
  const parts = [`# ${transcript.title || transcript.session_id}`];
  for (const message of transcript.messages) {
    const result = message.role === "tool" && `${text.result}: ${message.tool_name ?? ""}`;
    const who = result || names[message.role] || text.assistant;
    parts.push(`## ${who}${message.at ? ` · ${message.at}` : ""}`);
    if (message.content) parts.push(message.role === "tool" ? fenced(message.content) : message.content);
    for (const call of message.tool_calls ?? []) {
      parts.push(`**${call.name}**`, fenced(JSON.stringify(call.args, null, 2)));
    }
  }
  download(nameOf(transcript) + ".md", "text/markdown", parts.join("\n\n") + "\n");
}

/** fenced returns a code block whose fence is longer than any in the text. */
function fenced(content: string): string {
  const longest = Math.max(2, ...[...content.matchAll(/`+/g)].map((run) => run[0].length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${content}\n${fence}`;
}

function nameOf(transcript: Transcript): string {
  return (transcript.title || transcript.session_id).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "conversation";
}
