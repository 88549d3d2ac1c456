import type { Approver } from "./approvals.js";
import type { FarhandError } from "./errors.js";
import type { Credential } from "./pair.js";
import type { State } from "./state.js";
import type { Store } from "./store.js";
import type { Wake, WakeOffer } from "./wake.js";

export interface DeviceOptions {
  /** The bearer token. */
  token?: string;
  /** The credential of a paired device, from pair. It replaces token and deviceId. Default: the one in the store. */
  credential?: Credential;
  /** The session's id. Default: the one in the store, else the gateway chooses one. */
  session?: string;
  /** The label that people see for the session. */
  name?: string;
  /** A stable id of the device. */
  deviceId?: string;
  deviceName?: string;
  platform?: string;
  /** By which callers select devices. */
  labels?: Readonly<Record<string, string>>;
  /**
   * Keeps session, calls and answers, so that they survive a reload. Default: IndexedDB in browsers, memory in Node.js;
   * see fileStore.
   */
  store?: Store;
  /** Asks the person at the device about calls that need approval. Without it, only other approvers are asked. */
  approver?: Approver;
  /**
   * Says how the gateway wakes the device while it sleeps. It is called on each connection to a gateway that can. Null:
   * the gateway forgets how; undefined: it stays as it is. The device needs a deviceId, or is paired.
   */
  wake?: (offer: WakeOffer) => Wake | null | undefined | Promise<Wake | null | undefined>;
  /** How many handlers run at once. Further calls wait. Default: 16. */
  parallelism?: number;
  /** The first delay before a reconnect is random up to min; its bound doubles up to max. Default: 500 ms and 30 s. */
  backoff?: { min: number; max: number };
  /** How long the gateway may show no sign of life, in ms. Default: 60 s, three of its pings. */
  silence?: number;
}

/** What a device tells. */
export interface DeviceEvents {
  state: State;
  /** A handler begins. */
  call: CallEvent & { readonly args: Record<string, unknown>; readonly deadline: Date };
  /** A handler reports progress. */
  progress: CallEvent & { readonly progress: number; readonly total?: number; readonly message?: string };
  /** A call has its answer: an error, or a result. */
  answered: CallEvent & { readonly error?: string };
  /** The gateway knows how to wake the device: by this kind, "" if it does not any more. */
  wake: { readonly kind: string };
  /** The device is its user's default. */
  default: { readonly deviceId: string };
  /** The conversation has a title. */
  title: string;
  /**
   * The gateway does not like a frame, the store fails (`store`), the option wake does (`wake`), or another page has it
   * (`in_use`): this one connects when that one is closed. The device goes on.
   */
  trouble: FarhandError;
}

/** Names a call. */
export interface CallEvent {
  readonly id: string;
  readonly tool: string;
}
