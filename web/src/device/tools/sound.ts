import { audio, Result, type Call } from "@farhand/device";
import { lacks, using, without } from "../powers";
import { ask } from "../prompts";
import { words } from "../../words/device";
import { ending, record, records, withStream } from "./recording";
import { defaultDuration, duration, pageTool, pause, recordingTimeout, within } from "./tool";

const missing = () => without("microphone", Boolean(navigator.mediaDevices?.getUserMedia));
const open = (): Promise<MediaStream> => using("microphone", () => navigator.mediaDevices.getUserMedia({ audio: true }));

const levelFor = 1000; // ms that the level is measured
const levelEvery = 50; // ms
const silence = -100; // dB of full scale, about what 16 bits can say

const decibels = (amplitude: number): number =>
  Math.max(silence, Math.round(20 * Math.log10(Math.max(amplitude, 1e-9)) * 10) / 10);

function level(_: object, call: Call): Promise<object> {
  return withStream(open, call.awaited(), async (stream) => {
    const context = new AudioContext();
    try {
      const analyser = new AnalyserNode(context, { fftSize: 2048 });
      context.createMediaStreamSource(stream).connect(analyser);
      await context.resume();
      const samples = new Float32Array(analyser.fftSize);
      let [squares, count, peak] = [0, 0, 0];
      for (let ms = 0; ms < levelFor; ms += levelEvery) {
        await pause(levelEvery, call.awaited());
        analyser.getFloatTimeDomainData(samples);
        for (const sample of samples) {
          squares += sample * sample;
          peak = Math.max(peak, Math.abs(sample));
        }
        count += samples.length;
      }
      return { level_dbfs: decibels(Math.sqrt(squares / count)), peak_dbfs: decibels(peak), duration_ms: levelFor };
    } finally {
      await context.close();
    }
  });
}

async function clip({ duration_ms: ms = defaultDuration }: { duration_ms?: number }, call: Call): Promise<Result> {
  const recorded = await withStream(open, call.awaited(), (stream) => record(stream, "audio", ms, call));
  return new Result(`A recording of ${ms / 1000} seconds.`, [audio(recorded, undefined, `audio.${ending(recorded)}`)]);
}

async function speak(args: { text: string; language?: string; rate?: number }, call: Call): Promise<string> {
  if (!navigator.userActivation?.hasBeenActive) { // browsers are silent until the person has tapped once
    await ask(call, { text: args.text, choices: [{ label: words.tools.speak!.action!, look: "first", run: () => "" }] });
  }
  const utterance = new SpeechSynthesisUtterance(args.text);
  if (args.language) utterance.lang = args.language;
  if (args.rate) utterance.rate = args.rate;
  const spoken = new Promise<void>((resolve, reject) => {
    utterance.onend = () => resolve();
    utterance.onerror = ({ error }) => reject(new Error(`the browser cannot speak: ${error}`));
  });
  speechSynthesis.speak(utterance);
  try {
    await within(spoken, call.awaited());
  } catch (error) {
    speechSynthesis.cancel();
    throw error;
  }
  return "spoken";
}

/** The part of the Web Speech API that the page uses. TypeScript does not know it. */
interface Recognition extends EventTarget {
  lang: string;
  onresult: ((event: { results: ArrayLike<ArrayLike<{ transcript: string; confidence: number }>> }) => void) | null;
  onerror: ((event: { error: string }) => void) | null;
  onend: (() => void) | null;
  start(): void;
  abort(): void;
}

type Recognizers = { SpeechRecognition?: new () => Recognition; webkitSpeechRecognition?: new () => Recognition };
const recognizer = () => {
  const { SpeechRecognition, webkitSpeechRecognition } = globalThis as Recognizers;
  return SpeechRecognition ?? webkitSpeechRecognition;
};

async function listen({ language }: { language?: string }, call: Call): Promise<object> {
  const recognition = new (recognizer()!)();
  if (language) recognition.lang = language;
  const heard = new Promise<object>((resolve, reject) => {
    recognition.onresult = ({ results }) => {
      const [best] = [...Array.from(results[0] ?? [])];
      resolve({ text: best?.transcript ?? "", confidence: best?.confidence ?? 0 });
    };
    recognition.onerror = ({ error }) => reject(new Error(`the browser did not understand: ${error}`));
    recognition.onend = () => resolve({ text: "", confidence: 0 });
  });
  recognition.start();
  try {
    return await within(heard, call.awaited());
  } finally {
    recognition.abort();
  }
}

const language = { type: "string", maxLength: 35, description: "such as en-GB; default: the browser's" };

export const soundTools = [
  pageTool({
    name: "microphone_level", description: "Measure for one second how loud it is at this device, in dB of full scale.",
    effect: "reads", confirm: true,
  }, missing, level),
  pageTool({
    name: "audio_clip", description: "Record sound with the microphone of this device.", properties: duration,
    effect: "reads", confirm: true, timeout: recordingTimeout,
  }, () => missing() ?? lacks(records()), clip),
  pageTool({
    name: "speak", description: "Say a text aloud on this device. The call ends when it has been said.",
    properties: {
      text: { type: "string", minLength: 1, maxLength: 4096 }, language,
      rate: { type: "number", minimum: 0.5, maximum: 2, description: "default: 1" },
    },
    required: ["text"], effect: "changes", timeout: recordingTimeout,
  }, () => lacks("speechSynthesis" in globalThis), speak),
  pageTool({
    name: "listen", description: "Listen until the person at this device has said something, and return it as text.",
    properties: { language }, effect: "reads", confirm: true, timeout: 60_000,
  }, () => lacks(recognizer() !== undefined, true) ?? missing(), listen),
];
