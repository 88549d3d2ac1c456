/**
 * Call the tools of devices through a Farhand gateway.
 *
 * @packageDocumentation
 */
export { Approvals, type DecideOptions } from "./approvals.js";
export { PendingCall } from "./call.js";
export type { CallOptions, StartOptions, TargetOptions } from "./calling.js";
export { Conversation, type SayOptions } from "./conversation.js";
export {
  AmbiguousTargetError,
  ApprovalDeniedError,
  BudgetExceededError,
  BusyError,
  CancelledError,
  FarhandError,
  ForbiddenError,
  GatewayError,
  IdempotencyConflictError,
  InvalidArgumentsError,
  InvalidRequestError,
  LostError,
  NeedsForegroundError,
  NotConnectedError,
  NotFoundError,
  TimeoutError,
  TurnError,
  UnauthenticatedError,
  UnavailableError,
  UnreachableError,
} from "./errors.js";
export { Farhand, type FeedEvent, type Presence, type SessionFilter, type ToolFilter } from "./farhand.js";
export { GroupCall, type DeviceResult, type GroupOptions } from "./group.js";
export type { FarhandOptions, Query } from "./http.js";
export { CallResult, FilePart, ToolFailedError } from "./result.js";
export type * from "./types.js";
