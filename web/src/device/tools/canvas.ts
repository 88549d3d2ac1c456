import { image, Result, type Call } from "@farhand/device";
import * as canvas from "../canvas";
import { preview } from "../live";
import { pageTool } from "./tool";

const always = () => undefined;

async function snapshot({ quality = 85 }: { quality?: number }, call: Call): Promise<Result> {
  const { blob, text } = await canvas.picture(quality, call.awaited());
  preview(call.callId, blob);
  return new Result(text, [image(blob, "image/jpeg", "canvas.jpg")]);
}

export const canvasTools = [
  pageTool<{ url?: string }>({
    name: "canvas_present", description: "Show the canvas on this device's page, with a web page if a url is given.",
    properties: { url: { type: "string" } }, effect: "changes",
  }, always, ({ url }, call) => canvas.present(url, call.awaited())),
  pageTool({
    name: "canvas_hide", description: "Hide the canvas. It keeps its content.", effect: "changes",
  }, always, () => canvas.hide()),
  pageTool<{ url: string }>({
    name: "canvas_navigate", description: "Show another web page on the canvas, if that site lets itself be framed.",
    properties: { url: { type: "string", minLength: 1 } }, required: ["url"], effect: "opens",
  }, always, ({ url }, call) => canvas.navigate(url, call.awaited())),
  pageTool<{ javaScript: string }>({
    name: "canvas_eval",
    description: "Run JavaScript on the canvas, an empty HTML document of its own without network and storage, " +
      "and return its value as JSON. Draw into document.body.",
    properties: { javaScript: { type: "string", minLength: 1 } }, required: ["javaScript"], effect: "destroys",
    confirm: true,
  }, always, ({ javaScript }, call) => canvas.evaluate(javaScript, call.awaited())),
  pageTool<{ quality?: number }>({
    name: "canvas_snapshot",
    description: "Return a picture of what was drawn on the canvas, and what the person has tapped there since the last.",
    properties: { quality: { type: "integer", minimum: 1, maximum: 100 } }, effect: "reads",
  }, always, snapshot),
  pageTool<{ jsonl: string }>({
    name: "canvas_a2ui_push",
    description: "Add A2UI content to the canvas: one message of A2UI 0.9 on each line, as JSON, with the " +
      "basic catalog (https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json).",
    properties: { jsonl: { type: "string", minLength: 1 } }, required: ["jsonl"], effect: "changes",
  }, always, ({ jsonl }, call) => canvas.push(jsonl, call.awaited())),
  pageTool({
    name: "canvas_a2ui_reset", description: "Remove all content from the canvas.", effect: "changes",
  }, always, (_, call) => canvas.reset(call.awaited())),
];
