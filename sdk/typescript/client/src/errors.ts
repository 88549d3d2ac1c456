import type { Dispatched, ErrorCode, Problem } from "./types.js";

/** What an error says beside its message. */
export interface ErrorDetails {
  code: string;
  status?: number;
  callId?: string | undefined;
  dispatched?: Dispatched | undefined;
  retryable?: boolean | undefined;
  retryAfter?: number | undefined;
  problem?: Partial<Problem> | undefined;
  cause?: unknown;
}

/**
 * A failure that the gateway reported, or that kept a request from it. Each code has a class below; codes of newer
 * gateways are plain FarhandErrors.
 */
export class FarhandError extends Error {
  /** A code of docs/http.md, or `unreachable`, `tool_failed`, `http_STATUS` of this package. */
  readonly code: string;
  /** The HTTP status; 0 if the error was no response. */
  readonly status: number;
  /** The call that failed, if it had begun. */
  readonly callId: string | undefined;
  /** Whether the call reached its device: `no`, `yes`, `unknown`. Undefined for requests that call no tool. */
  readonly dispatched: Dispatched | undefined;
  /** Nothing ran, and a retry may succeed. The client has already retried, within its `retryFor`. */
  readonly retryable: boolean;
  /** How long to wait before a retry, in milliseconds, if the gateway named a time. */
  readonly retryAfter: number | undefined;
  /** The gateway's own words (RFC 9457). */
  readonly problem: Partial<Problem>;

  constructor(message: string, details: ErrorDetails) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = details.code;
    this.status = details.status ?? 0;
    this.callId = details.callId;
    this.dispatched = details.dispatched;
    this.retryable = details.retryable ?? false;
    this.retryAfter = details.retryAfter;
    this.problem = details.problem ?? {};
  }
}

/** The token is missing, wrong, expired or revoked. */
export class UnauthenticatedError extends FarhandError {}
/** Roles or the policy do not permit the request: `forbidden`, `policy_denied`, `hook_cancelled`. */
export class ForbiddenError extends FarhandError {}
/** A person denied the call, or did not answer in time. */
export class ApprovalDeniedError extends FarhandError {}
/** No such tool, session, call or other thing. */
export class NotFoundError extends FarhandError {}
/** The device is offline. `retryAfter` is set if the gateway expects it. */
export class NotConnectedError extends FarhandError {}
/** The tool works only while its app is in the foreground, and the app is in the background. */
export class NeedsForegroundError extends NotConnectedError {}
/** Several sessions match the target; `candidates` lists them, at most 20. */
export class AmbiguousTargetError extends FarhandError {
  get candidates(): NonNullable<Problem["candidates"]> {
    return this.problem.candidates ?? [];
  }
}
/** The idempotency key belongs to another request. */
export class IdempotencyConflictError extends FarhandError {}
/** The call was cancelled. `cause` is the reason of the AbortSignal that did it, if one did. */
export class CancelledError extends FarhandError {}
/** The arguments break the tool's schema; `errors` says where. */
export class InvalidArgumentsError extends FarhandError {
  get errors(): NonNullable<Problem["errors"]> {
    return this.problem.errors ?? [];
  }
}
/** The request itself is invalid: a wrong field, too large, a wrong type. */
export class InvalidRequestError extends FarhandError {}
/** A limit is reached: `rate_limited`, `busy`. */
export class BusyError extends FarhandError {}
/** The day's budget of the tenant or the caller is spent: `budget_exceeded`. It begins anew at midnight UTC. */
export class BudgetExceededError extends FarhandError {}
/** The gateway cannot serve the request now: `store_unavailable`, `draining`. */
export class UnavailableError extends FarhandError {}
/** The connection to the device, or the pod that has it, is gone: `connection_lost`, `lost`. */
export class LostError extends FarhandError {}
/** The device did not answer in time. */
export class TimeoutError extends FarhandError {}
/** A fault of the gateway, or a device's answer that it cannot read: `internal`, `invalid_result`. */
export class GatewayError extends FarhandError {}
/** The model or its turn failed: `provider_error`, `agent_error`. */
export class TurnError extends FarhandError {}
/** The gateway was not reached, or did not answer. A call may have run, unless `dispatched` is `no`. */
export class UnreachableError extends FarhandError {}

/** The class of each code. A code that the generated types add does not compile until it stands here. */
const classes: Record<ErrorCode, typeof FarhandError> = {
  agent_error: TurnError,
  ambiguous_target: AmbiguousTargetError,
  approval_denied: ApprovalDeniedError,
  budget_exceeded: BudgetExceededError,
  busy: BusyError,
  call_not_found: NotFoundError,
  cancelled: CancelledError,
  connection_lost: LostError,
  draining: UnavailableError,
  forbidden: ForbiddenError,
  hook_cancelled: ForbiddenError,
  idempotency_conflict: IdempotencyConflictError,
  internal: GatewayError,
  invalid_arguments: InvalidArgumentsError,
  invalid_request: InvalidRequestError,
  invalid_result: GatewayError,
  lost: LostError,
  method_not_allowed: InvalidRequestError,
  needs_foreground: NeedsForegroundError,
  not_connected: NotConnectedError,
  not_found: NotFoundError,
  payload_too_large: InvalidRequestError,
  policy_denied: ForbiddenError,
  provider_error: TurnError,
  rate_limited: BusyError,
  session_not_found: NotFoundError,
  store_unavailable: UnavailableError,
  timeout: TimeoutError,
  tool_not_found: NotFoundError,
  unauthenticated: UnauthenticatedError,
  unsupported_media_type: InvalidRequestError,
};

/** errorOf makes an error of the class of its code. */
export function errorOf(message: string, details: ErrorDetails): FarhandError {
  const type = Object.hasOwn(classes, details.code) ? classes[details.code as ErrorCode] : FarhandError;
  return new type(message, details);
}

/** errorOfResponse reads the error of a response. One that no gateway wrote, of a proxy between, is `unreachable`. */
export async function errorOfResponse(response: Response): Promise<FarhandError> {
  const problem = (await response.json().catch(() => ({}))) as Partial<Problem>;
  const seconds = Number(response.headers.get("Retry-After"));
  const details = {
    status: response.status,
    retryAfter: seconds > 0 ? seconds * 1000 : undefined,
    callId: problem.call_id ?? response.headers.get("X-Farhand-Call-Id") ?? undefined,
    dispatched: problem.dispatched,
    retryable: problem.retryable,
    problem,
  };
  if (typeof problem.code === "string") {
    return errorOf(problem.detail ?? problem.code, { ...details, code: problem.code });
  }
  if ([502, 503, 504].includes(response.status)) {
    return new UnreachableError(`A proxy answered ${response.status} for the gateway.`, {
      ...details,
      code: "unreachable",
    });
  }
  return new FarhandError(`The response is ${response.status} ${response.statusText}, and not the gateway's.`, {
    ...details,
    code: "http_" + response.status,
  });
}

/** unreachable is the error of a request without a response. */
export function unreachable(cause: unknown, url: string): UnreachableError {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  const why = inner instanceof Error ? inner.message : String(inner);
  return new UnreachableError(`The gateway at ${url} cannot be reached: ${why}`, { code: "unreachable", cause });
}

/** withDispatched returns a copy of an error that says what is known of its call. */
export function withDispatched(error: FarhandError, dispatched: Dispatched, callId = error.callId): FarhandError {
  const type = error.constructor as typeof FarhandError;
  return new type(error.message, {
    code: error.code,
    status: error.status,
    callId,
    dispatched,
    retryable: error.retryable && dispatched === "no",
    retryAfter: error.retryAfter,
    problem: error.problem,
    cause: error.cause,
  });
}
