// A program of a user, compiled with strict options and the types of the vendors.
import Anthropic from "@anthropic-ai/sdk";
import { type ActivityType, type CallEvent, Farhand, FarhandError, InvalidArgumentsError } from "@farhand/client";
import { farhandTools as forAISDK } from "@farhand/client/ai-sdk";
import { farhandTools as forAnthropic } from "@farhand/client/anthropic";
import { farhandTools as forLangChain } from "@farhand/client/langchain";
import { farhandTools as forOpenAI } from "@farhand/client/openai";
import { type LanguageModel, streamText } from "ai";
import { createAgent } from "langchain";
import OpenAI from "openai";

const farhand = new Farhand("https://gateway.example.com", { token: async () => "token", retryFor: 1_000 });

export async function calls(signal: AbortSignal): Promise<string> {
  const { structured, parts } = await farhand.call<{ lat: number }>(
    "locate",
    { exact: true },
    { device: "phone", signal },
  );
  const lat: number | undefined = structured?.lat;
  const blob: Blob | undefined = await parts[0]?.blob();
  const call = await farhand.start("record", {}, { labels: { room: "kitchen" }, select: "any", timeout: 1_000 });
  for await (const event of call) {
    const known: CallEvent = event;
    if (known.type === "progress") console.log(known.progress, known.chunk, lat, blob);
  }
  const types: ActivityType[] = ["call.finished"];
  for await (const { call } of farhand.events({ types, signal })) return call?.tool ?? "";
  for await (const event of farhand.conversation("phone").say("Hello", { signal })) {
    if (event.type === "chunk") console.log(event.content);
  }
  return (await call.result()).output;
}

export function words(error: unknown): string {
  if (error instanceof InvalidArgumentsError) return error.errors.map(({ pointer }) => pointer).join();
  if (error instanceof FarhandError)
    return `${error.code} ${error.dispatched satisfies "no" | "yes" | "unknown" | undefined}`;
  return String(error);
}

export async function agents(model: LanguageModel): Promise<void> {
  const messages = [{ role: "user" as const, content: "Hello" }];
  new OpenAI().chat.completions.runTools({
    model: "m",
    messages,
    tools: await forOpenAI(farhand, { device: "phone" }),
  });
  new Anthropic().beta.messages.toolRunner({ model: "m", max_tokens: 1, messages, tools: await forAnthropic(farhand) });
  streamText({ model, prompt: "Hello", tools: await forAISDK(farhand, { only: ["locate"] }) });
  createAgent({ model: "m", tools: await forLangChain(farhand, { user: "ann" }) });
}
