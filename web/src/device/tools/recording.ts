// Streams of the camera, the microphone and the screen, and recordings of them.

import type { Call } from "@farhand/device";
import { pause, within } from "./tool";

const kinds = {
  video: ["video/mp4;codecs=avc1.42E01E,mp4a.40.2", "video/webm;codecs=vp8,opus", "video/webm"],
  audio: ["audio/mp4", "audio/webm;codecs=opus", "audio/webm"],
};

const patience = 5000; // ms more for the first data of an encoder that begins late, as on a busy phone

export const records = (): boolean => "MediaRecorder" in globalThis;

/** Opens a stream, hands it to use, and turns it off. The stream of a call that ended while the person was asked, too. */
export async function withStream<T>(open: () => Promise<MediaStream>, signal: AbortSignal,
  use: (stream: MediaStream) => Promise<T>): Promise<T> {
  const opening = open();
  const off = (stream: MediaStream): void => stream.getTracks().forEach((track) => track.stop());
  let stream: MediaStream;
  try {
    stream = await within(opening, signal);
  } catch (error) {
    void opening.then(off, () => {});
    throw error;
  }
  try {
    return await use(stream);
  } finally {
    off(stream);
  }
}

/** Records a stream for some ms, or until the person ends it. It reports the seconds as progress. */
export async function record(stream: MediaStream, kind: keyof typeof kinds, ms: number, call: Call): Promise<Blob> {
  const mimeType = kinds[kind].find((type) => MediaRecorder.isTypeSupported(type));
  const recorder = new MediaRecorder(stream, {
    ...(mimeType && { mimeType }), videoBitsPerSecond: 2_000_000, audioBitsPerSecond: 64_000,
  });
  const pieces: Blob[] = [];
  const first = new Promise<void>((resolve) => {
    recorder.ondataavailable = ({ data }) => {
      pieces.push(data);
      if (data.size > 0) resolve();
    };
  });
  const ended = new Promise<void>((resolve, reject) => {
    recorder.onstop = () => resolve();
    recorder.onerror = () => reject(new Error("the browser cannot record"));
  });
  recorder.start(1000);
  const second = setInterval(() => call.progress(Math.min(ms, Date.now() - began) / 1000, ms / 1000), 1000);
  const began = Date.now();
  try {
    const full = pause(ms, call.signal).then(() => Promise.race([first, pause(patience, call.signal)]));
    await Promise.race([full, ended]);
  } finally {
    clearInterval(second);
    if (recorder.state !== "inactive") recorder.stop();
  }
  await ended;
  if (!pieces.some(({ size }) => size > 0)) throw new Error("the recording is empty");
  return new Blob(pieces, { type: recorder.mimeType || mimeType || (kind === "video" ? "video/webm" : "audio/webm") });
}

/** The ending of a file's name. */
export const ending = (blob: Blob): string => (blob.type.includes("mp4") ? "mp4" : "webm");
