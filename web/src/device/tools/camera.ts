import { file, image, Result, type Call, type Part } from "@farhand/device";
import { ask } from "../prompts";
import { lacks, mustBeSeen, using, without } from "../powers";
import { preview } from "../live";
import { words } from "../../words/device";
import { ending, record, records, withStream } from "./recording";
import { defaultDuration, duration, pageTool, pause, recordingTimeout, within } from "./tool";

type Facing = "front" | "back";

const facing = { facing: { type: "string", enum: ["front", "back", "both"], description: "default: back" } };
const sidesOf = (asked?: Facing | "both"): Facing[] => (asked === "both" ? ["front", "back"] : [asked ?? "back"]);
const longest = 1920; // pixels of a picture's longer side
const warmUp = 400; // ms in which cameras find exposure and focus

const missing = () => without("camera", Boolean(navigator.mediaDevices?.getUserMedia));

/** Opens the camera of a side, or the only one there is. */
function open(side: Facing, sound = false): Promise<MediaStream> {
  mustBeSeen("the camera");
  const facingMode = side === "front" ? "user" : "environment";
  return using("camera", () =>
    navigator.mediaDevices.getUserMedia({
      video: { facingMode: { ideal: facingMode }, width: { ideal: longest } }, audio: sound,
    }));
}

/** Draws the next picture of a stream. */
async function draw(stream: MediaStream, signal: AbortSignal): Promise<Blob> {
  const video = document.createElement("video");
  video.muted = video.playsInline = true;
  video.srcObject = stream;
  try {
    await within(video.play(), signal);
    await pause(warmUp, signal);
    const { videoWidth: width, videoHeight: height } = video;
    const scale = Math.min(1, longest / Math.max(width, height));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    canvas.getContext("2d")?.drawImage(video, 0, 0, canvas.width, canvas.height);
    return await blobOf(canvas, "image/jpeg", 0.85);
  } finally {
    video.srcObject = null;
  }
}

const blobOf = (canvas: HTMLCanvasElement, type: string, quality: number): Promise<Blob> =>
  new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture cannot be made"))), type, quality));

async function snap({ facing: asked }: { facing?: Facing | "both" }, call: Call): Promise<Result> {
  const parts: Part[] = [];
  for (const side of sidesOf(asked)) {
    const picture = await withStream(() => open(side), call.awaited(), (stream) => draw(stream, call.awaited()));
    preview(call.callId, picture);
    parts.push(image(picture, "image/jpeg", side + ".jpg"));
  }
  return new Result(parts.length > 1 ? "Two pictures: front, then back." : "A picture.", parts);
}

async function clip(args: { facing?: Facing | "both"; duration_ms?: number }, call: Call): Promise<Result> {
  const ms = args.duration_ms ?? defaultDuration;
  const sound = !without("microphone", true);
  const parts: Part[] = [];
  for (const side of sidesOf(args.facing)) {
    const clip = await withStream(
      () => open(side, sound), call.awaited(), (stream) => record(stream, "video", ms, call));
    parts.push(file(clip, undefined, `${side}.${ending(clip)}`));
  }
  return new Result(`A clip of ${ms / 1000} seconds${sound ? " with sound" : ""}.`, parts);
}

interface Camera {
  id: string;
  facing: Facing | "unknown";
  name: string;
}

const front = /front|user|face|selfie|built-?in|integrated|webcam/i;
const back = /back|rear|environment|world/i;

async function list(_: object, call: Call): Promise<Camera[]> {
  const cameras = async () =>
    (await navigator.mediaDevices.enumerateDevices()).filter(({ kind }) => kind === "videoinput");
  let found = await cameras();
  if (found.some(({ label }) => !label)) { // names are given after the person has allowed the camera once
    await withStream(() => open("back"), call.awaited(), async () => {});
    found = await cameras();
  }
  return found.map(({ deviceId, label }, i) => ({
    id: deviceId,
    facing: back.test(label) ? "back" : front.test(label) ? "front" : "unknown",
    name: label || `camera ${i + 1}`,
  }));
}

async function screen({ duration_ms: ms = defaultDuration }: { duration_ms?: number }, call: Call): Promise<Result> {
  mustBeSeen("recording the screen");
  const { question, action } = words.tools.screen_record!;
  const opened = (await ask(call, {
    text: question!,
    choices: [{ label: action!, look: "first", run: () => navigator.mediaDevices.getDisplayMedia({ video: true }) }],
  })) as MediaStream;
  const recorded = await withStream(async () => opened, call.awaited(), (stream) => record(stream, "video", ms, call));
  return new Result("A recording of the screen, or of what the person chose of it.",
    [file(recorded, undefined, `screen.${ending(recorded)}`)]);
}

export const cameraTools = [
  pageTool({
    name: "camera_list", description: "List the cameras of this device: id, facing, name.", effect: "reads",
    confirm: true,
  }, missing, list),
  pageTool({
    name: "camera_snap", description: "Take a picture with a camera of this device.", properties: facing,
    effect: "reads", confirm: true, timeout: 60_000,
  }, missing, snap),
  pageTool({
    name: "camera_clip", description: "Record a clip with a camera of this device, with sound if the person allows it.",
    properties: { ...facing, ...duration }, effect: "reads", confirm: true, timeout: recordingTimeout,
  }, () => missing() ?? lacks(records()), clip),
  pageTool({
    name: "screen_record",
    description: "Record the screen of this device, or the part of it that the person chooses when asked.",
    properties: duration, effect: "reads", confirm: true, timeout: 2 * recordingTimeout,
  }, () => lacks(records() && Boolean(navigator.mediaDevices?.getDisplayMedia), true), screen),
];

