// Questions to the person at the device. They come one under the other, oldest first, and leave when they are answered,
// when their call no longer waits, or with Stop.

import type { Call, Question, Decision } from "@farhand/device";
import { signal } from "@preact/signals";
import { notice } from "./notices";

export interface Choice {
  label: string;
  look?: "first" | "danger";
  /** Runs within the tap, since browsers allow some things only there. Its value is the answer. */
  run: (text: string) => unknown;
}

export interface Prompt {
  id: string;
  tool: string;
  /** What the agent says; shown as plain text. */
  text: string;
  /** More of it, in small letters. */
  detail?: string;
  remarks?: readonly string[];
  choices: readonly Choice[];
  /** It asks whether another call may run. */
  approval?: true;
  /** With a text field, whose text is the last choice's: what stands in it while it is empty. */
  field?: string;
  /** Answers with an error: the person does not want to. */
  dismiss?: () => void;
  until: Date;
}

export const prompts = signal<readonly Prompt[]>([]);

const most = 16; // that wait for the person

type Asked = Omit<Prompt, "id" | "until" | "tool" | "dismiss" | "choices"> & { choices: readonly Choice[] };

/** Asks the person on behalf of a call, and returns the value of the chosen action. */
export function ask(call: Call, asked: Asked): Promise<unknown> {
  return show(call.callId, call.tool, asked, call.deadline, call.awaited(), "the person dismissed the question");
}

async function show(id: string, tool: string, asked: Asked, until: Date, signal: AbortSignal, dismissed: string,
): Promise<unknown> {
  signal.throwIfAborted();
  if (prompts.value.length >= most) throw new Error("too many questions wait for the person already");
  const leave = notice(tool, asked.text);
  try {
    return await new Promise((resolve, reject) => {
      const settle = (answer: () => unknown): void => {
        try {
          resolve(answer()); // a rejected promise rejects this one
        } catch (error) {
          reject(error as Error);
        }
      };
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      prompts.value = [
        ...prompts.value,
        {
          ...asked, id, tool, until,
          choices: asked.choices.map((choice) => ({
            ...choice,
            run: (text: string) => settle(() => choice.run(text)),
          })),
          ...(dismissed && { dismiss: () => reject(new Error(dismissed)) }),
        },
      ];
    });
  } finally {
    prompts.value = prompts.value.filter((prompt) => prompt.id !== id);
    leave();
  }
}

/** Asks the person whether a call that needs approval may run. */
export async function approve(question: Question, signal: AbortSignal, labels: Record<Decision, string>,
): Promise<Decision> {
  const choice = (decision: Decision, look?: Choice["look"]): Choice =>
    ({ label: labels[decision], run: () => decision, ...(look && { look }) });
  const { id, tool, text, reason, remarks, expires } = question;
  return (await show(
    "approval-" + id, tool,
    {
      approval: true,
      text: reason, detail: text, remarks,
      choices: [choice("allow-once", "first"), choice("allow-always"), choice("deny", "danger")],
    },
    expires, signal, "",
  )) as Decision;
}
