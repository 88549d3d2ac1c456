// What the package exports everywhere.
export type { Approver, Decision, Question } from "./approvals.js";
export type { Call } from "./call.js";
export type { Chat, TurnEvent, TurnOptions, TurnPart } from "./chat.js";
export type { CallEvent, DeviceEvents, DeviceOptions } from "./options.js";
export { FarhandError } from "./errors.js";
export type { Rejection } from "./frames.js";
export { forgetCredential, storedCredential, type Credential, type PairOptions } from "./pair.js";
export { audio, file, image, Result, type Data, type Part } from "./parts.js";
export type { JsonSchema, StandardSchema } from "./standard.js";
export type { State } from "./state.js";
export { memoryStore, type Store } from "./store.js";
export type { Effects, Handler, Hints, Tool } from "./tools.js";
export type { Wake, WakeOffer } from "./wake.js";
