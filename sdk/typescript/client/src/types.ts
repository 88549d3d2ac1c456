// Generated from the OpenAPI document by `make docs`.

/** A feed entry. */
export type Activity = {
  approval?: ApprovalNote;
  at: Time;
  call?: CallRecord;
  device_id?: string;
  /** The pod that reports it. */
  pod: string;
  reason?: string;
  session_id?: SessionID;
  /** With `session.tools`: all tools now offered. */
  tools?: Array<ToolName>;
  /** With `turn.started` and `turn.finished`. */
  turn?: {
    /** Tool calls requested by the model. */
    calls?: number;
    /** Of the error. */
    code?: string;
    duration_ms?: number;
    id: string;
    input_tokens?: number;
    model: string;
    /** Done, aborted or error. */
    outcome?: string;
    output_tokens?: number;
    /** The user who started the turn. */
    user_id?: string;
  };
  type: ActivityType;
  /** The session's user. */
  user_id?: string;
};

/** The type of a feed entry. */
export type ActivityType = "session.connected" | "session.updated" | "session.disconnected" | "session.tools" | "call.finished" | "call.progress" | "turn.started" | "turn.finished" | "pod.died" | "approval.requested" | "approval.decided" | "budget.warning" | "budget.spent";

/** MCP hints. They come from the device and are not verified. */
export type Annotations = {
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
  readOnlyHint?: boolean;
};

/** A tool in the format of Anthropic's messages. */
export type AnthropicTool = {
  description: string;
  input_schema: Parameters;
  name: ModelName;
};

/** Tools in the format of Anthropic's API. */
export type AnthropicToolList = {
  names?: ChangedNames;
  next_cursor?: NextCursor;
  output_schemas?: OutputSchemas;
  tools: Array<AnthropicTool>;
};

/** An approval with its arguments, as sent and as unambiguous text. */
export type Approval = {
  /** With `by: two`: the first person who allowed the call. */
  allowed_by?: string;
  /** Who may decide, if known: users, names of keys, other holders of the role. */
  approvers?: Array<string>;
  /** As they will reach the tool. */
  args?: Record<string, unknown>;
  args_digest: string;
  /** The complete arguments for people. Invisible and ambiguous characters are escaped. */
  args_text: string;
  /** Where argument values come from, if known. */
  arguments?: Array<ArgumentSource>;
  /** Who may allow the call by the policy. Absent: every approver except the calling credential. */
  by?: "anyone" | "other" | "two";
  call_id: string;
  /** Of the person who decided. */
  comment?: string;
  created_at: Time;
  decided_at?: Time;
  /** A user, a credential or a device; two of them with `by: two`. */
  decided_by?: string;
  device_id?: string;
  device_name?: string;
  /** The devices of a group call, instead of the three members above. The approval covers one call of each. */
  devices?: Array<ApprovedDevice>;
  /** What the tool declares about its calls. */
  effects?: ToolEffects;
  /** Without a decision until then, the call is denied. */
  expires_at: Time;
  id: ApprovalID;
  /** The device_id of a paired device that looks similar. */
  looks_like?: string;
  /** Whether the reader may allow the call now. */
  may_decide: boolean;
  /** `async`: no caller waits, and the call starts when it is allowed. */
  mode: "sync" | "async";
  /** Why the call needs approval. */
  reason: string;
  /** Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters outside ASCII. */
  remarks: Array<"long" | "multiline" | "hidden" | "foreign">;
  requester: Requester;
  /** The id of the policy rule that requires it. */
  rule: string;
  /** The digest of the tool's definition. The approval is valid only for this definition. */
  schema_hash: string;
  scope?: "once" | "always_tool" | "always_args";
  /** The target session. Absent for built-in tools. */
  session_id?: SessionID;
  state: ApprovalState;
  tool: string;
  turn_id?: string;
  /** The device's user, or the requester. Absent: no user. */
  user_id?: string;
};

/** ApprovalID names an approval or a grant. */
export type ApprovalID = string;

/** The open approvals, in order of expiry. */
export type ApprovalList = {
  approvals: Array<ApprovalRow>;
};

/** An approval in the feed. */
export type ApprovalNote = {
  call_id: string;
  decided_by?: string;
  expires_at: Time;
  id: ApprovalID;
  state: ApprovalState;
  tool: string;
  user_id?: string;
};

/** An approval in a list, without the arguments of its call. */
export type ApprovalRow = {
  /** With `by: two`: the first person who allowed the call. */
  allowed_by?: string;
  /** Who may decide, if known: users, names of keys, other holders of the role. */
  approvers?: Array<string>;
  args_digest: string;
  /** Where argument values come from, if known. */
  arguments?: Array<ArgumentSource>;
  /** Who may allow the call by the policy. Absent: every approver except the calling credential. */
  by?: "anyone" | "other" | "two";
  call_id: string;
  /** Of the person who decided. */
  comment?: string;
  created_at: Time;
  decided_at?: Time;
  /** A user, a credential or a device; two of them with `by: two`. */
  decided_by?: string;
  device_id?: string;
  device_name?: string;
  /** The devices of a group call, instead of the three members above. The approval covers one call of each. */
  devices?: Array<ApprovedDevice>;
  /** What the tool declares about its calls. */
  effects?: ToolEffects;
  /** Without a decision until then, the call is denied. */
  expires_at: Time;
  id: ApprovalID;
  /** The device_id of a paired device that looks similar. */
  looks_like?: string;
  /** Whether the reader may allow the call now. */
  may_decide: boolean;
  /** `async`: no caller waits, and the call starts when it is allowed. */
  mode: "sync" | "async";
  /** Why the call needs approval. */
  reason: string;
  requester: Requester;
  /** The id of the policy rule that requires it. */
  rule: string;
  /** The digest of the tool's definition. The approval is valid only for this definition. */
  schema_hash: string;
  scope?: "once" | "always_tool" | "always_args";
  /** The target session. Absent for built-in tools. */
  session_id?: SessionID;
  state: ApprovalState;
  tool: string;
  turn_id?: string;
  /** The device's user, or the requester. Absent: no user. */
  user_id?: string;
};

/** The state of an approval. `expired`: no decision came in time, so the call was denied. `withdrawn`: the call ended first. */
export type ApprovalState = "pending" | "allowed" | "denied" | "expired" | "withdrawn";

/** One of the devices that an approval covers. */
export type ApprovedDevice = {
  device_id?: string;
  /** As the device calls itself. */
  name?: string;
  session_id: string;
  user_id?: string;
};

/** A tool of a device with its approved definition. */
export type ApprovedTool = {
  /** Of the definition. */
  hash: string;
  name: string;
};

/** Where a value in the arguments comes from. */
export type ArgumentSource = {
  /** JSON Pointer into the arguments. */
  pointer: string;
  /** How the record of a result begins that the value is a field of. */
  record?: string;
  /** Who named the value first; `model`: it appears first in this call. */
  source: string;
  /** Shortened. */
  value: string;
};

/** The action that was done or denied. */
export type AuditAction = "call" | "register" | "login" | "key.create" | "key.revoke" | "revoke" | "pair.ask" | "pair.look" | "pair.decide" | "pair.setup" | "device.update" | "device.revoke" | "device.tools" | "approval.ask" | "approval.decide" | "grant.revoke" | "policy.reload" | "session.kick" | "session.rename" | "turn.abort" | "call.cancel" | "doctor" | "backup" | "tenant.key" | "tenant.budget" | "budget.warning" | "budget.spent" | "key.rotate" | "device.rotate" | "device.wake" | "user.erase" | "user.default_device" | "device.import";

/** A line of the audit log. */
export type AuditLine = {
  action: AuditAction;
  actor: {
    /** The id of the credential, which is no secret. */
    credential?: string;
    /** What people call the credential. */
    name?: string;
    roles?: Array<string>;
    /** The address or network that the request came from. */
    source?: string;
    user?: string;
  };
  /** SHA-256 of the arguments' text, in hex; that of the call's record and of its approval. */
  args_digest?: string;
  at: Time;
  call_id?: string;
  /** Of the error. */
  code?: string;
  device_id?: string;
  id: string;
  /** Lines of this kind that were left out before this one. */
  omitted?: number;
  outcome: AuditOutcome;
  pod: string;
  /** As returned to the caller; a long one is cut. */
  reason?: string;
  /** What of the policy decided, or which limit was reached. */
  rule?: string;
  session_id?: string;
  /** The subject of an admin action: the id of a key, a device, an approval or a pairing. */
  target?: string;
  tool?: string;
  turn_id?: string;
};

/** The outcome of an action. allowed: it was permitted, or done. denied: a rule or a person denied it. failed: it could not be done. seen: it was viewed without a decision. */
export type AuditOutcome = "allowed" | "denied" | "failed" | "seen";

/** A page of the audit log, the newest line first. */
export type AuditPage = {
  lines: Array<AuditLine>;
  next_cursor?: NextCursor;
};

/** A budget that applies to the caller, and what is spent of it today. */
export type BudgetState = {
  limits: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
  per: "tenant" | "identity";
  /** Until it begins anew. */
  reset_in_seconds: number;
  spent: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
};

/** The answer to an asynchronous call, which continues without its request. */
export type CallAccepted = {
  /** The approval that an asynchronous call waits or waited for. The call's timeout starts when a person allows it. */
  approval_id?: ApprovalID;
  /** Who may decide, if known. */
  approvers?: Array<string>;
  call_id: string;
  device_id?: string;
  /** When a queued call expires if its device has not taken it. */
  expires_at?: string;
  mode: "async";
  /** The place of a queued call in the queue of its device, from 1 on. */
  place?: number;
  /** Absent for built-in tools. */
  session_id?: SessionID;
  state: CallState;
};

/** The result of a call. The server writes it by hand, because it is the answer that it gives most. */
export type CallAnswer = {
  call_id: string;
  device_id?: string;
  duration_ms: number;
  error?: string;
  output: string;
  output_violations?: OutputViolations;
  parts?: Parts;
  /** Absent for built-in tools. */
  session_id?: SessionID;
  state: "succeeded" | "failed";
  /** The output as JSON, if the device sent JSON other than a string. */
  structured?: unknown;
  /** Whether the tool succeeded. A tool that ran and failed is not an error of the gateway. */
  success: boolean;
};

/** A line of a call's log. */
export type CallEvent = {
  at: Time;
  call_id: string;
  /** A part of the output. */
  chunk?: string;
  message?: string;
  progress?: number;
  state?: CallState;
  total?: number;
  type: "state" | "progress" | "truncated";
};

/** A page of the finished calls. */
export type CallList = {
  calls: Array<CallRecord>;
  next_cursor?: NextCursor;
};

/** The record of a call. The members from success on are as in CallAnswer. They are absent until the device has answered. */
export type CallRecord = {
  /** The approval that the call waits or waited for. The timeout of an asynchronous call starts when a person allows it. */
  approval_id?: ApprovalID;
  /** Equal for equal arguments. The arguments are not stored. */
  args_digest?: string;
  call_id: string;
  /** Of a group call that has ended. */
  counts?: GroupCounts;
  device_id?: string;
  dispatched: Dispatched;
  error?: string;
  /** When a queued call expires. */
  expires_at?: string;
  /** The answer came after the caller had received another outcome. */
  late: boolean;
  /** Of a group call, its own: `all`, `first`, `quorum` or `race`. */
  mode: "sync" | "async" | "all" | "first" | "quorum" | "race";
  output?: string;
  /** Only false: the output was not stored, as for short synchronous calls. Then output, structured and parts are absent. */
  output_kept?: false;
  output_violations?: OutputViolations;
  /** The pod that delivered the call to the device. */
  owner?: string;
  /** The group call that this call is a child of. */
  parent_id?: string;
  parts?: Parts;
  /** Of a queued call: its place in the queue of its device, from 1 on, if one call was read. */
  place?: number;
  /** The pod that received the request. */
  pod: string;
  /** For calls without a result. */
  problem?: {
    code: ErrorCode;
    detail: string;
  };
  /** For calls without a result: nothing ran, and a retry may succeed. */
  retryable?: boolean;
  session_id?: SessionID;
  /** builtin: a built-in tool. mcp:NAME: a tool of that MCP server. Absent for tools of devices. */
  source?: string;
  state: CallState;
  status: CallStatus;
  structured?: unknown;
  /** Present, like the next four members, once the device has answered. Lists and feeds omit the tool's output. */
  success?: boolean;
  timeline: Array<{
    at: Time;
    state: CallState;
  }>;
  timeout_ms: number;
  tool: string;
  /** The trace of the request, if the gateway makes traces. */
  trace_id?: string;
  /** The turn of a conversation in which the call was made. Absent outside conversations. */
  turn_id?: string;
  /** Of the caller. */
  user_id?: string;
};

/** A request for a call. An empty body means {}. Duplicate keys and null are rejected: omit the field instead. */
export type CallRequest = {
  /** Validated against the tool's parameters, then passed to the device exactly as sent. At most 64 levels deep. */
  args?: Record<string, unknown>;
  idempotency_key?: IdempotencyKey;
  /** Default: `sync`. `async`: respond with 202 once the call has a record; the call continues in the background. */
  mode?: "sync" | "async";
  ordered?: Ordered;
  /** Lets a call to a sleeping device wait for it. `target` must then name one device. */
  queue?: Queue;
  /** The session to use if several match. `any`: any of them. `newest`: the last connected of those that define the tool like the longest connected one. Among several with the same `device_id`, both use the longest connected one. Default: the error `ambiguous_target`. */
  select?: "any" | "newest";
  target?: Target;
  /** How long to wait for the device, as an integer without exponent. Default: the tool's timeout, otherwise the gateway's (30 s). Longer timeouts are cut to the gateway's maximum. */
  timeout_ms?: number;
};

/** The state of a call. The first five are temporary, the others final. After `cancelled`, `timed_out` and `lost`, a late answer of the device is still stored in the record. */
export type CallState = "queued" | "accepted" | "routed" | "delivered" | "running" | "succeeded" | "failed" | "cancelled" | "timed_out" | "lost" | "rejected" | "expired";

/** CallStatus summarizes `state`: nothing runs yet (`accepted`, `routed`), the tool runs (`delivered`, `running`), it succeeded (`succeeded`), or it did not. */
export type CallStatus = "pending" | "executing" | "completed" | "failed";

/** A nonce for a paired device to sign. */
export type Challenge = {
  /** Seconds. */
  expires_in: number;
  /** The text to sign is `farhand-device-v1`, a line feed, this nonce, a line feed, and the device_id. */
  nonce: string;
};

/** ChangedNames maps each changed name to the name to call the tool by. */
export type ChangedNames = Record<string, ToolName>;

/** An answer of /v1/chat/completions, in OpenAI's format. */
export type Completion = {
  choices: Array<{
    finish_reason: FinishReason;
    index: 0;
    /** Always null. */
    logprobs: Record<string, unknown> | null;
    message: {
      /** The model's text; null if it only calls tools. */
      content: string | null;
      reasoning_content?: string;
      /** Why the model refused to answer. */
      refusal: string | null;
      role: "assistant";
      tool_calls?: Array<CompletionCall>;
    };
  }>;
  /** Unix time in seconds. */
  created: number;
  id: string;
  model: string;
  object: "chat.completion";
  usage: CompletionUsage;
};

/** A call of one of the caller's own tools. Each is in one chunk. */
export type CompletionCall = {
  function: {
    /** As written by the model; may be invalid JSON. */
    arguments: string;
    name: string;
  };
  id: string;
  /** In streams only. */
  index?: number;
  type: "function";
};

/** A part of a streamed completion. */
export type CompletionChunk = {
  /** Empty in the chunk with the token counts. */
  choices: Array<CompletionChunkChoice>;
  created: number;
  id: string;
  model: string;
  object: "chat.completion.chunk";
  /** With `include_usage`: null except in the last chunk. */
  usage?: CompletionUsage | null;
};

/** The only choice of a CompletionChunk. */
export type CompletionChunkChoice = {
  delta: CompletionDelta;
  finish_reason: FinishReason | null;
  index: 0;
  /** Always null. */
  logprobs: Record<string, unknown> | null;
};

/** The content that a CompletionChunk adds. */
export type CompletionDelta = {
  content?: string;
  reasoning_content?: string;
  refusal?: string;
  /** In the first chunk. */
  role?: "assistant";
  tool_calls?: Array<CompletionCall>;
};
export type CompletionPiece = CompletionChunk | OpenAIError;

/** The supported fields of OpenAI's request. Other fields, and values that the model's provider does not support, are rejected with an error that names the field. null means absent. */
export type CompletionRequest = {
  frequency_penalty?: number | null;
  logit_bias?: Record<string, number> | null;
  logprobs?: boolean | null;
  /** The same; takes precedence. */
  max_completion_tokens?: number | null;
  max_tokens?: number | null;
  /** Messages of the roles `system` and `developer` come before all others. Each call of an assistant must be followed by its result. */
  messages: Array<CompletionRequestMessage>;
  metadata?: Record<string, string> | null;
  modalities?: Array<"text"> | null;
  /** A name from /v1/models, or `farhand` for the default. */
  model: string;
  n?: 1 | null;
  parallel_tool_calls?: boolean | null;
  presence_penalty?: number | null;
  prompt_cache_key?: string | null;
  /** As defined by the model's provider. */
  reasoning_effort?: string | null;
  /** A JSON response is one text, without the model's text next to calls of the device's tools. */
  response_format?: {
    json_schema?: {
      description?: string | null;
      name: ModelName;
      schema: Record<string, unknown>;
      strict?: boolean | null;
    };
    type: "text" | "json_object" | "json_schema";
  } | null;
  safety_identifier?: string | null;
  seed?: number | null;
  service_tier?: string | null;
  stop?: string | Array<string> | null;
  store?: boolean | null;
  stream?: boolean | null;
  stream_options?: {
    include_obfuscation?: boolean | null;
    /** The last chunk has the token counts. */
    include_usage?: boolean | null;
  } | null;
  temperature?: number | null;
  /** `none`: no tool is offered, including those of the device and the gateway. `required`: if the request has tools, the response ends with a call of one; otherwise the model first calls any tool. */
  tool_choice?: "auto" | "none" | "required" | {
    function: {
      name: string;
    };
    type: "function";
  } | null;
  tools?: Array<{
    function: {
      description?: string | null;
      name: ModelName;
      /** JSON Schema of the arguments. */
      parameters?: Record<string, unknown> | null;
      /** The model must follow the schema. */
      strict?: boolean | null;
    };
    type: "function";
  }> | null;
  top_logprobs?: 0 | null;
  top_p?: number | null;
  /** The user whose device's tools are added, if the header is absent. Passed on to the model's provider. */
  user?: string | null;
  verbosity?: string | null;
};
export type CompletionRequestMessage = {
  /** Text; from a user also images. Only an assistant's message with tool calls may be empty. */
  content?: string | Array<{
    image_url?: {
      detail?: string | null;
      /** http:, https: or data:image/. The model's provider fetches it. */
      url: string;
    };
    refusal?: string | null;
    text?: string | null;
    type: "text" | "image_url" | "refusal";
  }> | null;
  refusal?: string | null;
  role: "system" | "developer" | "user" | "assistant" | "tool";
  tool_call_id?: string | null;
  tool_calls?: Array<{
    function: {
      arguments?: string | null;
      name: string;
    };
    id: string;
  }> | null;
};

/** CompletionUsage counts the tokens of a completion. */
export type CompletionUsage = {
  completion_tokens: number;
  prompt_tokens: number;
  total_tokens: number;
};

/** A new API key. */
export type CreatedKey = {
  context?: string;
  created_at: Time;
  /** The credential that created it. */
  created_by?: string;
  device_id?: string;
  /** Absent: after 400 days without use. */
  expires_at?: Time;
  /** The secret before the last rotation, while it works. */
  former_secret?: FormerSecret;
  /** The id of the key; not secret. */
  id: string;
  /** The secret key, returned only once. */
  key: string;
  /** Of the current secret, approximate; absent: never. */
  last_used_at?: Time;
  /** For people. */
  name?: string;
  /** Its MCP calls are made by a person's program. Absent: by a model. */
  person?: boolean;
  roles: Array<"device" | "caller" | "approver" | "admin" | "operator">;
  tenant: string;
  tools?: string;
  user_id?: string;
};

/** What may be spent on a day, from midnight to midnight UTC, on all pods together. Absent amounts, and 0: no limit. */
export type DayBudget = {
  /** By each of its identities: a user, or a credential without one. */
  identity?: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
  /** By the whole tenant. */
  tenant?: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
  /** The share of a limit, in percent, from which the gateway warns. Default: 80. */
  warn_percent?: number;
};

/** An approval after a decision: the first one counts. */
export type Decision = {
  /** With `by: two`: the first person who allowed the call. */
  allowed_by?: string;
  /** Who may decide, if known: users, names of keys, other holders of the role. */
  approvers?: Array<string>;
  /** As they will reach the tool. */
  args?: Record<string, unknown>;
  args_digest: string;
  /** The complete arguments for people. Invisible and ambiguous characters are escaped. */
  args_text: string;
  /** Where argument values come from, if known. */
  arguments?: Array<ArgumentSource>;
  /** Who may allow the call by the policy. Absent: every approver except the calling credential. */
  by?: "anyone" | "other" | "two";
  call_id: string;
  /** Of the person who decided. */
  comment?: string;
  created_at: Time;
  /** Whether this request decided. If not, another request was first, or the approval had expired. */
  decided: boolean;
  decided_at?: Time;
  /** A user, a credential or a device; two of them with `by: two`. */
  decided_by?: string;
  device_id?: string;
  device_name?: string;
  /** The devices of a group call, instead of the three members above. The approval covers one call of each. */
  devices?: Array<ApprovedDevice>;
  /** What the tool declares about its calls. */
  effects?: ToolEffects;
  /** Without a decision until then, the call is denied. */
  expires_at: Time;
  grant?: Grant;
  id: ApprovalID;
  /** The device_id of a paired device that looks similar. */
  looks_like?: string;
  /** Whether the reader may allow the call now. */
  may_decide: boolean;
  /** `async`: no caller waits, and the call starts when it is allowed. */
  mode: "sync" | "async";
  /** Why the call needs approval. */
  reason: string;
  /** Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters outside ASCII. */
  remarks: Array<"long" | "multiline" | "hidden" | "foreign">;
  requester: Requester;
  /** The id of the policy rule that requires it. */
  rule: string;
  /** The digest of the tool's definition. The approval is valid only for this definition. */
  schema_hash: string;
  scope?: "once" | "always_tool" | "always_args";
  /** The target session. Absent for built-in tools. */
  session_id?: SessionID;
  state: ApprovalState;
  tool: string;
  turn_id?: string;
  /** The device's user, or the requester. Absent: no user. */
  user_id?: string;
};

/** A decision on an approval. */
export type DecisionRequest = {
  /** One line for the audit log and, with `deny`, for the caller and the model. */
  comment?: string;
  decision: "allow-once" | "allow-always" | "deny";
  /** With `allow-always`: how long the grant lasts; default 30 days. */
  expires_in_ms?: number;
  /** With `allow-always`: the tool with any arguments, or only with these. */
  scope?: "tool" | "arguments";
};

/** The device of a user that is called if several match. */
export type DefaultDevice = {
  device_id: string;
};

/** A paired device with its tools. */
export type Device = {
  /** With their approved definitions. */
  approved: Array<ApprovedTool>;
  created_at: Time;
  /** The credential that approved it. */
  created_by: string;
  device_id: string;
  expires_at?: Time;
  /** The secret before the last rotation, while it works. */
  former_secret?: FormerSecret;
  /** Of its credential. */
  id: string;
  key_fingerprint?: string;
  last_pong?: LastPong;
  /** Of a sleeping device. */
  last_seen?: string;
  last_used?: Time;
  /** The device_id of another paired device that looks similar. */
  looks_like?: string;
  name?: string;
  /** It is an OpenClaw node. */
  node?: boolean;
  /** Whether the device is connected now. */
  online: boolean;
  /** Absent unless the request has the parameter `presence`, and for devices that are neither: they never connected, or not for long. */
  presence?: "connected" | "sleeping";
  rejected: Array<string>;
  /** It gets a new credential when it next connects. */
  renews_credential?: boolean;
  round_trip_ms?: RoundTrip;
  /** Names and globs that were approved in advance. */
  tools: Array<string>;
  user_id?: string;
  waiting: Array<WaitingTool>;
  /** How many of its tools wait for approval; absent: none. */
  waiting_tools?: number;
};

/** The limits of one device. The frames `session_start` and `connected` have the same limits. */
export type DeviceLimits = {
  /** That one session has in flight. */
  calls: number;
  /** Kept of a description. */
  description_characters: number;
  /** Frames at once. */
  frame_burst: number;
  /** Of one message, unless it answers a call. */
  frame_bytes: number;
  /** On average. Answers to open calls do not count. */
  frames_per_second: number;
  /** Of the output of one call. */
  output_bytes: number;
  /** Of the parameters of one tool. */
  schema_bytes: number;
  /** Nesting of the parameters of one tool. */
  schema_depth: number;
  /** Of the definitions of all of them. */
  tool_bytes: number;
  /** Of definitions that are registered, after twice `tool_bytes` at once. */
  tool_bytes_per_second: number;
  /** That one session offers. */
  tools: number;
};

/** A page of the paired devices. */
export type DeviceList = {
  devices: Array<DeviceRow>;
  next_cursor?: NextCursor;
};

/** A paired device. */
export type DeviceRow = {
  created_at: Time;
  /** The credential that approved it. */
  created_by: string;
  device_id: string;
  expires_at?: Time;
  /** The secret before the last rotation, while it works. */
  former_secret?: FormerSecret;
  /** Of its credential. */
  id: string;
  key_fingerprint?: string;
  last_pong?: LastPong;
  /** Of a sleeping device. */
  last_seen?: string;
  last_used?: Time;
  /** The device_id of another paired device that looks similar. */
  looks_like?: string;
  name?: string;
  /** It is an OpenClaw node. */
  node?: boolean;
  /** Whether the device is connected now. */
  online: boolean;
  /** Absent unless the request has the parameter `presence`, and for devices that are neither: they never connected, or not for long. */
  presence?: "connected" | "sleeping";
  /** It gets a new credential when it next connects. */
  renews_credential?: boolean;
  round_trip_ms?: RoundTrip;
  /** Names and globs that were approved in advance. */
  tools: Array<string>;
  user_id?: string;
  /** How many of its tools wait for approval; absent: none. */
  waiting_tools?: number;
};

/** How a device is woken, without secrets, and when it was. */
export type DeviceWake = {
  device_id: string;
  /** Of the last failure. */
  error?: string;
  /** Since the last push that the service took. */
  failures?: number;
  /** Of the URL or endpoint. */
  host?: string;
  kind: string;
  last_push?: Time;
  min_interval_ms: number;
  /** Planned. */
  next_push?: Time;
  quiet?: QuietHours;
  registered_at: Time;
  /** apns: the bundle id of the app. */
  topic?: string;
};

/** What a pod found when it checked what it uses. */
export type Diagnosis = {
  findings: Array<Finding>;
  pod: string;
};

/** A listed tool that the caller may not call. */
export type DisabledTool = {
  name: ToolName;
  /** As in the list of tools. */
  reason: string;
};

/** Whether the call reached the device, so that the tool may have run. */
export type Dispatched = "no" | "yes" | "unknown";

/** The machine-readable error. New codes may be added. */
export type ErrorCode = "agent_error" | "ambiguous_target" | "approval_denied" | "budget_exceeded" | "busy" | "call_not_found" | "cancelled" | "connection_lost" | "draining" | "forbidden" | "hook_cancelled" | "idempotency_conflict" | "internal" | "invalid_arguments" | "invalid_request" | "invalid_result" | "lost" | "method_not_allowed" | "needs_foreground" | "not_connected" | "not_found" | "payload_too_large" | "policy_denied" | "provider_error" | "rate_limited" | "session_not_found" | "store_unavailable" | "timeout" | "tool_not_found" | "unauthenticated" | "unsupported_media_type";

/** EventID names an event of a stream, for the header Last-Event-ID. */
export type EventID = string;

/** A ticket that opens one event stream, once. */
export type EventTicket = {
  /** Seconds. */
  expires_in: number;
  ticket: string;
  /** The path of the stream with the ticket, for an EventSource. */
  url: string;
};

/** The result of the check of one part. */
export type Finding = {
  /** The configuration enables something that needs it. */
  needed: boolean;
  ok: boolean;
  part: string;
  /** What is available, or what is missing and how to get it. */
  text: string;
};

/** Why a completion ends. */
export type FinishReason = "stop" | "length" | "content_filter" | "tool_calls";

/** A request for the first key of a tenant, with the role admin. */
export type FirstKeyRequest = {
  /** Seconds. Absent: it ends after 400 days without use. */
  expires_in?: number;
  /** For people. */
  name?: string;
};

/** The secret of a credential before its last rotation. */
export type FormerSecret = {
  expires_at: Time;
  /** Approximate. Absent: never. */
  last_used_at?: Time;
};

/** What "allow always" has granted. */
export type Grant = {
  approval_id: ApprovalID;
  /** Absent: any arguments. */
  args_digest?: string;
  created_at: Time;
  device_id?: string;
  expires_at: Time;
  granted_by: string;
  id: ApprovalID;
  requester: Requester;
  schema_hash: string;
  session_id?: SessionID;
  tool: string;
  user_id?: string;
};

/** All grants. */
export type GrantList = {
  grants: Array<Grant>;
};

/** The table of a group call. It is streamed: results come as devices answer. */
export type GroupAnswer = {
  /** Of the parent. */
  call_id: string;
  counts: GroupCounts;
  /** Why the call has not what its mode asks for, if known. */
  error?: string;
  mode: GroupMode;
  /** Why the call ended early. */
  problem?: {
    code: ErrorCode;
    detail: string;
  };
  results: Array<GroupResult>;
  /** `succeeded`: the call has what its mode asks for, with `all` a success of every device whose call is not queued. */
  state: "succeeded" | "failed" | "cancelled" | "timed_out" | "rejected";
};

/** GroupCounts say what became of the devices of a group call. Each device that was called is counted once more, as succeeded, failed, cancelled or queued. */
export type GroupCounts = {
  /** The outcome no longer mattered. */
  cancelled: number;
  /** That were called. */
  devices: number;
  /** The tool failed, or the call has no result. */
  failed: number;
  /** The call waits for its device. */
  queued: number;
  /** Skipped devices matched the target and were not called, as far as known when the call ended: it was decided or out of time before, or they connected only after it had begun. */
  skipped: number;
  succeeded: number;
};

/** When a group call has what it asks for. */
export type GroupMode = "all" | "first" | "quorum" | "race";

/** GroupRequest calls one tool of many devices: one parent call with a child call for each device. */
export type GroupRequest = {
  /** The same for every device. Validated against each device's definition of the tool. */
  args?: Record<string, unknown>;
  /** Devices at a time; default 64. */
  concurrency?: number;
  /** How long each device may take. Default: the tool's timeout, otherwise the gateway's (30 s). */
  device_timeout_ms?: number;
  idempotency_key?: IdempotencyKey;
  /** `all` (default): every device. `first`: until one succeeds; the others are cancelled. `quorum`: until `quorum` devices succeed. `race`: the next device is called after `stagger_ms` without an answer, or after a failure, until one succeeds. */
  mode?: GroupMode;
  /** With the mode `all`: calls the devices that sleep, too. Their calls wait for them. */
  queue?: Queue;
  /** With the mode `quorum`. */
  quorum?: number;
  /** Every device that the target matches. */
  select?: "all";
  /** With the mode `race`; default 500. */
  stagger_ms?: number;
  /** Default: all connected devices that the caller can use and that offer the tool. */
  target?: GroupTarget;
  /** How long the whole call may take. Default: 5 minutes. Longer timeouts are cut to the gateway's maximum. */
  timeout_ms?: number;
  tool: ToolName;
};

/** What became of the call of one device: as CallAnswer, or with a problem. */
export type GroupResult = {
  /** Of the child. */
  call_id?: string;
  device_id?: string;
  /** With problem: whether the device may have acted. */
  dispatched?: Dispatched;
  duration_ms?: number;
  error?: string;
  /** Of a queued call. */
  expires_at?: string;
  /** Absent in the answer to a repeated request. */
  output?: string;
  output_violations?: OutputViolations;
  parts?: Parts;
  /** Of a queued call, as in CallAccepted. */
  place?: number;
  problem?: {
    code: ErrorCode;
    detail: string;
  };
  session_id?: SessionID;
  state: CallState;
  structured?: unknown;
  /** Absent, like the next four members, without a result. */
  success?: boolean;
};

/** One definition of a tool. */
export type GroupRow = {
  annotations?: Annotations;
  /** Each call of the caller needs a person's approval. */
  approval?: "required";
  description: string;
  effects?: ToolEffects;
  /** Whether the policy lets the caller call it. */
  enabled: boolean;
  name: ToolName;
  output_schema?: OutputSchema;
  parameters: Parameters;
  /** Why the caller may not call it; absent if it may. */
  reason?: string;
  /** Equal for equal definitions, including descriptions and annotations. */
  schema_hash: string;
  security_level?: "safe" | "user_confirm" | "admin_only";
  /** Number of connected sessions with exactly this definition. Zero for built-in tools, which come first. */
  sessions: number;
  source_type: "builtin" | "mcp" | "remote";
  tags?: ToolTags;
  /** The timeout of a call that sets none. */
  timeout_ms?: number;
};

/** GroupTarget selects devices: by user and labels, which must all match, or by a list of ids. */
export type GroupTarget = {
  device_ids?: Array<string>;
  labels?: Labels;
  session_ids?: Array<string>;
  user_id?: string;
};

/** Health says that the process serves requests. */
export type Health = {
  pod: string;
  status: "ok";
  version: string;
};

/** IdempotencyKey makes retries safe: the same request with the same key returns the first response, or joins the running call. A different request with the key fails with `idempotency_conflict`. If a call never reached a device, its key can be used again. */
export type IdempotencyKey = string;

/** ImportReport says what became of imported nodes. */
export type ImportReport = {
  /** In the order of the request. */
  nodes: Array<ImportedState>;
};

/** A request to pair nodes of an OpenClaw installation. */
export type ImportRequest = {
  nodes: Array<ImportedNode>;
  /** Owner of the nodes. Absent: none in particular. */
  user?: string;
};

/** A node that is paired with an OpenClaw gateway. */
export type ImportedNode = {
  /** For people. */
  name?: string;
  /** 32 bytes in base64url without padding. */
  public_key: string;
  /** The SHA-256 of the node's token. The node connects with the token, and gets a credential of Farhand in its place. */
  token_sha256: string;
  /** Names or globs of tools that it may offer. */
  tools?: Array<string>;
};

/** What became of an imported node. */
export type ImportedState = {
  device_id: string;
  /** With `refused`. */
  reason?: string;
  status: "imported" | "exists" | "refused";
};

/** Index names what a gateway serves. Paths are of the same origin. */
export type Index = {
  /** For people; absent: this gateway has none. */
  console?: string;
  /** For people; a URL. */
  documentation: string;
  /** Whether the process serves requests. */
  health: string;
  /** The endpoint of MCP clients. */
  mcp: string;
  name: "farhand";
  /** Every route of the API. */
  openapi: string;
  /** Whether the pod accepts new traffic. */
  ready: string;
  version: string;
};

/** What an erasure keeps. */
export type Kept = {
  /** At the latest. */
  until: Time;
  what: string;
};

/** An API key, without its secret. */
export type Key = {
  context?: string;
  created_at: Time;
  /** The credential that created it. */
  created_by?: string;
  device_id?: string;
  /** Absent: after 400 days without use. */
  expires_at?: Time;
  /** The secret before the last rotation, while it works. */
  former_secret?: FormerSecret;
  /** The id of the key; not secret. */
  id: string;
  /** Of the current secret, approximate; absent: never. */
  last_used_at?: Time;
  /** For people. */
  name?: string;
  /** Its MCP calls are made by a person's program. Absent: by a model. */
  person?: boolean;
  roles: Array<"device" | "caller" | "approver" | "admin" | "operator">;
  tenant: string;
  tools?: string;
  user_id?: string;
};

/** A page of the API keys, the oldest first. */
export type KeyList = {
  keys: Array<Key>;
  next_cursor?: NextCursor;
};

/** A request for an API key. */
export type KeyRequest = {
  /** The participants of conversations that it opens. Default: main. */
  context?: "main" | "group" | "group sandboxed";
  /** The only device_id that a device may use with the key. */
  device_id?: string;
  expires_at?: string;
  /** Seconds; instead of expires_at. */
  expires_in?: number;
  /** For people. */
  name?: string;
  /** Whether its MCP calls are made by a person's program. Default: false: they count as a model's. */
  person?: boolean;
  /** Default: caller. */
  roles?: Array<"device" | "caller" | "approver" | "admin" | "operator">;
  /** A tenant other than the caller's: only with FARHAND_TOKEN. */
  tenant?: string;
  /** Globs of tool names, separated by spaces. Absent: all tools. */
  tools?: string;
  /** The user of the key. Absent: it has no user. */
  user_id?: string;
};

/** Attributes of a device, by which it can be found. */
export type Labels = Record<string, string>;

/** When the device last answered a ping of its pod, by the clock of that pod. The pod notes it when it refreshes the session, three times per `FARHAND_SESSION_TTL`. Absent: not known yet. */
export type LastPong = string;

/** The limits of the caller and of devices. */
export type Limits = {
  /** Of a request's body. */
  body_bytes: number;
  /** What may be spent on a day. Absent: no budget applies to the caller. */
  budgets?: Array<BudgetState>;
  /** The timeout of a call when neither the request nor the tool names one. */
  call_timeout_ms: number;
  device: DeviceLimits;
  /** The longest timeout that a call gets. */
  max_call_timeout_ms: number;
  /** The longest `wait_ms`. */
  max_wait_ms: number;
  rates: Array<RateLimit>;
  /** Event streams of one identity that may be open at once on a pod. */
  streams: number;
};
export type MCPFailure = {
  /** As defined by JSON-RPC and MCP. -32000: an error of the gateway, with its code in `data.code`. */
  code: number;
  data?: {
    call_id?: string;
    candidates?: Array<Record<string, unknown>>;
    code?: ErrorCode;
    dispatched?: Dispatched;
    errors?: Array<Record<string, unknown>>;
    requested?: string;
    /** What the client must declare. */
    requiredCapabilities?: Record<string, unknown>;
    retry_after_ms?: number;
    /** Whether a retry is safe and may succeed. */
    retryable?: boolean;
    /** The supported revisions. */
    supported?: Array<string>;
    /** The missing resource. */
    uri?: string;
  };
  /** For people: the problem and what to do. */
  message: string;
};

/** A JSON-RPC message of MCP. */
export type MCPMessage = {
  error?: MCPFailure;
  /** The id of a request and its response: a string or a whole number. */
  id?: unknown;
  jsonrpc: "2.0";
  method?: string;
  params?: Record<string, unknown>;
  result?: Record<string, unknown>;
};

/** A tool in the format of MCP's tools/list. */
export type MCPTool = {
  _meta?: ToolMeta;
  annotations?: Annotations;
  description: string;
  inputSchema: Parameters;
  name: ToolName;
  outputSchema?: OutputSchema;
};

/** Tools in the format of MCP. */
export type MCPToolList = {
  names?: ChangedNames;
  next_cursor?: NextCursor;
  tools: Array<MCPTool>;
};

/** The identity of the caller, and what the gateway is set up for. */
export type Me = {
  /** Whether a language model is configured. */
  chat: boolean;
  /** Of the credential, for people. */
  name?: string;
  /** Which devices may request pairing. */
  pairing: "code" | "open" | "off";
  roles: Array<"device" | "caller" | "approver" | "admin" | "operator">;
  tenant: string;
  /** absent: the credential has no user. */
  user_id?: string;
};

/** A message as shown to people, without the parts that only its model can read. */
export type Message = {
  /** Of a result: a person approved the call. */
  approved?: boolean;
  at?: Time;
  content: string;
  /** The tool failed, or did not run. */
  failed?: boolean;
  /** The answer was interrupted at its end. */
  interrupted?: boolean;
  parts?: PartList;
  role: "system" | "user" | "assistant" | "tool";
  /** Of a result: `outside` if third parties may have written it, `gateway` if no tool ran and the gateway says why, `local` for built-in tools that read no third-party content. */
  source?: "outside" | "gateway" | "local";
  /** Of a result: the call's arguments that the person has not named. By default they need approval. */
  suspects?: Array<{
    /** JSON Pointer into the arguments. */
    pointer: string;
    source: "outside" | "model";
    /** Shortened. */
    value: string;
    /** Where the value was found. */
    where?: string;
  }>;
  /** It is external content, or was written after external content was read. */
  tainted?: boolean;
  /** The model's visible reasoning. */
  thinking?: string;
  /** For the role `tool`: the call that the message answers. */
  tool_call_id?: string;
  tool_calls?: Array<{
    /** An object, or the model's text if that was not JSON. */
    args: unknown;
    id: string;
    name: string;
  }>;
  tool_name?: string;
  turn_id?: string;
};

/** Either `content` or a true `regenerate`. Duplicate keys and null are rejected: omit the field instead. */
export type MessageRequest = {
  /** The user's message. */
  content?: string;
  /** The participants of the conversation, which determine the offered tools. Default: `main`, one trusted person. If the credentials set a stricter context, that one applies. */
  context?: "main" | "group" | "group sandboxed";
  /** Send each model request as an event `debug_prompt`. */
  debug?: boolean;
  /** Offers the tools of the device also while it sleeps. Their calls then wait for it; a later turn learns their outcomes. The header `X-Farhand-Queue` has the same effect. */
  queue?: Queue;
  /** Answer the last message again and replace its answer. */
  regenerate?: boolean;
  /** The format of tool results in the response. The model always reads the raw text. Default: `markdown`. */
  results?: "markdown" | "plain";
  /** Whether to respond with events. Default: true if the header Accept has text/event-stream. */
  stream?: boolean;
};

/** A model in OpenAI's list format. */
export type Model = {
  /** Not known. */
  created: 0;
  id: string;
  object: "model";
  owned_by: "farhand";
};

/** The available models. */
export type ModelList = {
  data: Array<Model>;
  object: "list";
};

/** A tool or schema name that model vendors accept. */
export type ModelName = string;

/** Absent on the last page. */
export type NextCursor = string;

/** What the console needs to sign in with an identity provider (OpenID Connect). */
export type OIDC = {
  client_id: string;
  provider: OIDCProvider;
  scope: string;
  /** Which one the gateway accepts. */
  token: "access_token" | "id_token";
};

/** What an identity provider says about itself, under the names of OpenID Connect Discovery. */
export type OIDCProvider = {
  authorization_endpoint: string;
  authorization_response_iss_parameter_supported?: boolean;
  id_token_signing_alg_values_supported?: Array<string>;
  issuer: string;
  response_modes_supported?: Array<string>;
  revocation_endpoint?: string;
  token_endpoint: string;
};

/** An error in OpenAI's format. */
export type OpenAIError = {
  error: {
    /** `invalid_api_key`, `invalid_request_error`, `model_not_found` and `rate_limit_exceeded` as in OpenAI's API, otherwise the gateway's own code. */
    code: string;
    /** For people: the problem and what to do. */
    message: string;
    /** The invalid field. */
    param: string | null;
    type: "invalid_request_error" | "rate_limit_error" | "server_error";
  };
};

/** A tool in the format of OpenAI's chat completions. It has no other members, because servers, including /v1, reject tools with unknown members. */
export type OpenAITool = {
  function: {
    description: string;
    name: ModelName;
    parameters: Parameters;
  };
  type: "function";
};

/** Tools in the format of OpenAI's API. */
export type OpenAIToolList = {
  names?: ChangedNames;
  next_cursor?: NextCursor;
  output_schemas?: OutputSchemas;
  tools: Array<OpenAITool>;
};

/** Ordered makes the calls that set it run one at a time on a device, in the order in which they were accepted. `true`: the calls of the session with `true`. `tool`: the calls of the tool with `tool`. An asynchronous call is accepted when the response arrives. The timeout includes the wait. Tools of the gateway ignore it. */
export type Ordered = unknown;

/** The JSON Schema (2020-12) of the tool's output; absent if unknown. Results are checked against it. */
export type OutputSchema = Record<string, unknown>;

/** The output schemas of tools by their names in this list, because the format has no place for them. */
export type OutputSchemas = Record<string, OutputSchema>;

/** The result's violations of the tool's output schema, at most 20; absent if there are none. The result is passed on unchanged. */
export type OutputViolations = Array<{
  message: string;
  /** JSON Pointer into the output. */
  pointer: string;
}>;

/** The answer to a PairRequest. */
export type PairAsked = {
  /** To display to a person. */
  code: string;
  device_id: string;
  /** Seconds until the request expires. */
  expires_in: number;
  id: string;
  /** Seconds between requests to `/pair/status`. */
  interval: number;
  /** For `/pair/status`. The device must keep it secret. */
  secret: string;
};

/** A device's request to be paired. */
export type PairRequest = {
  /** The credential is bound to it. Absent: the gateway generates one. */
  device_id?: string;
  /** For people. */
  device_name?: string;
  /** For people. */
  platform?: string;
  /** An Ed25519 key, 32 bytes in base64url without padding. The credential then works only with signatures. */
  public_key?: string;
  /** Names of tools the device wants to offer. */
  tools?: Array<string>;
};

/** A request for the status of a pairing request. */
export type PairSecret = {
  secret: string;
};

/** The status of a pairing request. */
export type PairStatus = {
  /** With `approved`: the device's bearer token. It is returned only once. */
  credential?: string;
  device_id: string;
  name?: string;
  status: "pending" | "rejected" | "approved";
};

/** A pairing request, as shown to its approver. */
export type Pairing = {
  /** A device with this device_id is already paired. */
  already_paired: boolean;
  /** Program and version, of an OpenClaw node. */
  client?: string;
  created_at: Time;
  device_id: string;
  device_name?: string;
  expires_at: Time;
  id: string;
  /** Of the public key, if the device has one. */
  key_fingerprint?: string;
  /** The device_id of another device, paired or waiting, that looks similar. */
  looks_like?: string;
  platform?: string;
  /** Warnings about the device_id: characters outside ASCII, or spaces and signs that are unusual in ids. */
  remarks?: Array<"foreign" | "unusual">;
  /** The address the request came from. */
  source: string;
  status: "pending" | "rejected" | "approved";
  tools: Array<string>;
  user_id?: string;
};

/** An approver's decision on a pairing request. */
export type PairingDecision = {
  /** As the device displays it; case and hyphens are ignored. */
  code?: string;
  decision?: "approve" | "reject";
  /** For people. Absent: the device's own name. */
  name?: string;
  /** Revokes the credential of an already paired device with the same device_id. */
  replace?: boolean;
  /** Names or globs of the tools that it may offer. Absent: the requested ones. */
  tools?: Array<string>;
  /** The device's user. Absent: the approver. */
  user?: string;
};

/** The requests that can be decided without their codes. */
export type PairingList = {
  pairings: Array<Pairing>;
};

/** The JSON Schema (2020-12) of the arguments. */
export type Parameters = Record<string, unknown>;

/** An image, a sound or a file that a tool returned. */
export type Part = {
  /** All parts of a result together have at most 1 MiB here. */
  data?: string;
  /** As the device named it, in lower case and without parameters. */
  mime_type: string;
  /** Of the file, as the device named it. It is no path to write to. */
  name?: string;
  /** In bytes. */
  size: number;
  /** Moving pictures are files. */
  type: "image" | "audio" | "file";
  /** The URI of an MCP server's resource. It is not an address to fetch. */
  uri?: string;
  /** The temporary URL of the bytes, if they are not in `data`. With neither, they were not stored. */
  url?: string;
};

/** The tool's non-text output, without `data`. Parts have `url` if the gateway stored the file. */
export type PartList = Array<Part>;

/** Images, sounds and files that the tool returned. They are never in `output`. */
export type Parts = Array<Part>;

/** The live pods. */
export type PodList = {
  pods: Array<PodRow>;
};

/** A live pod. */
export type PodRow = {
  pod: string;
  /** The pod that answers this request. */
  self: boolean;
  /** Absent: the pod did not answer within a second. */
  status?: PodStatus;
};

/** How a pod is. Counters count from its start; a difference of two answers is what happened in between. */
export type PodStatus = {
  /** Of the counters, by the pod's clock. */
  at: Time;
  calls: number;
  calls_failed: number;
  draining: boolean;
  /** Of calls that a tool answered. */
  durations: Array<{
    count: number;
    /** Absent: no bound. */
    max_ms?: number;
  }>;
  /** Calls that wait for their answers. */
  in_progress: number;
  memory_bytes: number;
  redis?: RedisStatus;
  /** Rejected requests, by error code. */
  refused: Record<string, number>;
  /** Whose sockets are on the pod. */
  sessions: number;
  started_at: Time;
  /** Open event streams. */
  streams: number;
  /** Of conversations, running. */
  turns: number;
  version: string;
  /** Warnings for the operator, as of `/readyz`. */
  warnings?: Array<string>;
};

/** The policy in force. */
export type Policy = {
  defaults: Array<PolicyRule>;
  /** Equal on pods with equal rules. */
  digest: string;
  /** The text of the policy file. Absent: there is none. */
  file?: string;
  lists: {
    call_allow?: Array<string>;
    call_deny?: Array<string>;
    register_allow?: Array<string>;
    register_deny?: Array<string>;
  };
  /** Why the current file is not in force. File is then the previous one. */
  refused?: string;
};

/** The policy's decision about a question. */
export type PolicyDecision = {
  allowed: boolean;
  /** The call needs approval for each of these reasons. */
  approvals: Array<PolicyDemand>;
  context: string;
  destinations?: Array<string>;
  effects: Array<string>;
  /** The call is refused under these conditions. */
  forbidden: Array<PolicyDemand>;
  limits: Array<RateLimit>;
  /** Why not. */
  reason?: string;
  /** That decided. */
  rule?: string;
  security_level: "safe" | "user_confirm" | "admin_only";
  tool: string;
};

/** A rule's reason to ask a person, or to refuse. */
export type PolicyDemand = {
  by?: "anyone" | "other" | "two";
  grant_seconds?: number;
  /** Only URLs in the arguments count. */
  only_urls?: boolean;
  rule: string;
  when: string;
  within_seconds?: number;
};

/** PolicyQuestion asks whether a caller may call a tool. */
export type PolicyQuestion = {
  /** Default: main. */
  context?: "main" | "group" | "group sandboxed";
  /** Effects that the tool declares. */
  effects?: Array<"read_only" | "destructive" | "open_world">;
  /** A model calls. */
  model?: boolean;
  /** The call arrives over MCP. */
  over_mcp?: boolean;
  /** Whether a device may register the name instead. */
  register?: boolean;
  /** Default: caller. */
  roles?: Array<"device" | "caller" | "approver" | "admin">;
  /** Of the tool. */
  security_level?: "safe" | "user_confirm" | "admin_only";
  /** Where the tool comes from. Default: `builtin` for names of the gateway's own tools, else `remote`, a device. */
  source?: "remote" | "builtin" | "mcp";
  tool: ToolName;
  /** Globs of tools that the credential allows, separated by spaces. Absent: all. */
  tools?: string;
  /** Absent: a credential without a user. */
  user_id?: string;
};

/** A default rule. */
export type PolicyRule = {
  about?: string;
  id: string;
  /** `replaced`: by a rule of the file. `off`: by FARHAND_AGENT_UNCONFIRMED. */
  state: "in_force" | "replaced" | "off";
  /** In YAML. */
  text: string;
};

/** An error as clients see it: RFC 9457 with Farhand's own members. */
export type Problem = {
  /** In every failure of a request to call a tool, with `dispatched` and `retryable`. */
  call_id?: string;
  /** With `ambiguous_target`: sessions that could have been meant, at most 20. */
  candidates?: Array<{
    device_id?: string;
    /** The device says that its app is in the foreground. */
    foreground?: boolean;
    name?: string;
    session_id: SessionID;
    user_id?: string;
  }>;
  code: ErrorCode;
  /** What to do about it, for people. */
  detail: string;
  dispatched?: Dispatched;
  /** With `invalid_arguments`: the broken rules of the parameters schema. */
  errors?: Array<{
    message: string;
    /** JSON Pointer (RFC 6901) into `args`; empty for `args` itself. */
    pointer: string;
  }>;
  /** The call was not dispatched and asking again may help. */
  retryable?: boolean;
  status: number;
  title: string;
  /** The trace of the request, if the gateway makes traces. */
  trace_id?: string;
  type: string;
};

/** A message as sent to the model. */
export type PromptMessage = {
  content?: string;
  role?: string;
};

/** The metadata of the MCP endpoint, in the form of RFC 9728. */
export type ProtectedResource = {
  authorization_servers: Array<string>;
  bearer_methods_supported: Array<string>;
  /** The URL to request a token for at the authorization server. */
  resource: string;
  resource_name: string;
  scopes_supported?: Array<string>;
};

/** Queue lets a call to a sleeping device wait for it. */
export type Queue = {
  /** The longest wait, 1 s to the gateway's maximum (`FARHAND_QUEUE_TTL`). */
  ttl_ms: number;
};

/** The calls that wait for a device, in order. The first one may be running. */
export type QueuedCalls = {
  calls: Array<CallRecord>;
};

/** A part of each day. `from` may be later than `to`: then they pass midnight. */
export type QuietHours = {
  from: string;
  to: string;
  /** Of the IANA database, such as Europe/Vienna; empty: UTC. */
  zone: string;
};

/** How often tools may be called. A call counts for all rates that apply to it. */
export type RateLimit = {
  calls: number;
  /** What calls are counted for: `identity`, `device` or `tenant`. */
  per: string;
  /** The setting, or the rule of the policy. */
  rule: string;
  /** Globs of tools; each tool is counted separately. A rule may cover fewer of them, such as one security level. Absent: the calls of all tools are counted together. */
  tools?: Array<string>;
  window_seconds: number;
};

/** Ready says that new traffic can come to a pod. */
export type Ready = {
  status: "ready";
  /** Warnings for the operator. The pod still serves. policy_file_refused: the current policy file is invalid, and the previous one is in force; model_prices_refused says the same of the file of model prices. certificate_refused: the current files of the certificate cannot be used, and an earlier certificate is in use. */
  warnings?: Array<"policy_file_refused" | "model_prices_refused" | "certificate_refused">;
};

/** Receipt says what of a person was erased. It does not name the person. */
export type Receipt = {
  at: Time;
  /** Numbers by kind. */
  erased: Record<string, number>;
  id: string;
  /** What still names the person. */
  kept: Array<Kept>;
  /** The first 16 hexadecimal digits of the SHA-256 of `id`, the tenant and the user, separated by line feeds. */
  subject: string;
};

/** A pod's connection to Redis. Absent: the pod's store is its memory. */
export type RedisStatus = {
  connections: number;
  /** Of round trips. */
  durations: Array<{
    count: number;
    /** Absent: no bound. */
    max_ms?: number;
  }>;
  /** Round trips. */
  failed: number;
  /** It answers, and messages of other pods arrive. */
  ready: boolean;
};

/** The caller that needs approval. */
export type Requester = {
  /** The caller's credential; not secret. */
  credential?: string;
  /** A language model calls, in the user's conversation. */
  model: boolean;
  /** The display name of the credential. */
  name?: string;
  user_id?: string;
};

/** Exactly one member. */
export type Revocation = {
  /** As in the audit log and in lists, key:… or device:…, or its id. */
  credential?: string;
  device_id?: string;
  /** The id of a JSON Web Token. */
  jti?: string;
  user_id?: string;
};

/** The answer to a revocation. */
export type Revoked = {
  /** Number of removed credentials. */
  credentials: number;
};

/** A request for a new secret of a credential. */
export type RotateRequest = {
  /** Seconds for which the former secret still works; 0: not at all. Default: a day; for a device that rotates its own credential, a week. An OpenClaw node gets its new secret when it next connects, and the former one ends when the node has used that, or a day later. With 0, the node's connection ends now, and the former secret in 10 minutes. */
  overlap?: number;
};

/** The new credential of a paired device. */
export type RotatedDevice = {
  /** The bearer token, returned only once. Absent with `on_next_connection`. */
  credential?: string;
  device_id: string;
  former_secret?: FormerSecret;
  id: string;
  /** The device is an OpenClaw node: it gets the new credential itself, when it next connects. */
  on_next_connection?: boolean;
};

/** From the last ping to its pong, in milliseconds, rounded up. Absent: not known yet. */
export type RoundTrip = number;

/** A session with a running turn. */
export type RunningSession = {
  created_at: Time;
  last_activity: Time;
  /** Of the conversation. */
  message_count: number;
  name?: string;
  session_id: SessionID;
  turn_started_at: Time;
};

/** A page of the sessions with a running turn. */
export type RunningSessionList = {
  next_cursor?: NextCursor;
  sessions: Array<RunningSession>;
};

/** A session with the definitions of its tools. */
export type Session = {
  capabilities?: Array<string>;
  /** False: only the conversation exists. Then `connected_at`, `pod` and `generation` are absent, and there are no tools. */
  connected: boolean;
  connected_at?: Time;
  created_at: Time;
  device_id?: string;
  device_name?: string;
  /** Grows with each connection of the session. Lists are in this order. */
  generation?: number;
  labels?: Labels;
  last_activity: Time;
  last_pong?: LastPong;
  /** Of the conversation. */
  message_count: number;
  name?: string;
  /** The same as `connected`; the name in lists of paired devices. */
  online: boolean;
  platform?: string;
  /** The pod that holds the device's connection. */
  pod?: string;
  round_trip_ms?: RoundTrip;
  session_id: SessionID;
  /** In order of name. */
  tools: Array<Tool>;
  user_id?: string;
};

/** The result of an abort. */
export type SessionAborted = {
  status: "aborted" | "no_active_response";
};

/** SessionID names a session. */
export type SessionID = string;

/** A page of the list of sessions. */
export type SessionList = {
  next_cursor?: NextCursor;
  sessions: Array<SessionRow>;
};

/** A request to rename a session or a paired device. */
export type SessionName = {
  name: string;
};

/** A renamed session. */
export type SessionRenamed = {
  name: string;
  session_id: SessionID;
};

/** A session in a list. The session is connected, or has a conversation. */
export type SessionRow = {
  capabilities?: Array<string>;
  /** False: only the conversation exists. Then `connected_at`, `pod` and `generation` are absent, and there are no tools. */
  connected: boolean;
  connected_at?: Time;
  created_at: Time;
  device_id?: string;
  device_name?: string;
  /** Grows with each connection of the session. Lists are in this order. */
  generation?: number;
  labels?: Labels;
  last_activity: Time;
  last_pong?: LastPong;
  /** Of a sleeping device. */
  last_seen?: string;
  /** Of the conversation. */
  message_count: number;
  name?: string;
  /** The same as `connected`; the name in lists of paired devices. */
  online: boolean;
  platform?: string;
  /** The pod that holds the device's connection. */
  pod?: string;
  /** Absent unless the request has the parameter `presence`. */
  presence?: "connected" | "sleeping";
  round_trip_ms?: RoundTrip;
  session_id: SessionID;
  /** In order of name. */
  tools: Array<ToolName>;
  /** The tools that the caller may not call now. Absent: the caller may call all of them. */
  tools_disabled?: Array<DisabledTool>;
  user_id?: string;
};

/** Whether a turn of a session is running, and since when. */
export type SessionState = {
  session_id: SessionID;
  state: "idle" | "running";
  turn_started_at?: Time;
};

/** SetupCode pairs one OpenClaw node without a question to an approver. It is returned only once. */
export type SetupCode = {
  expires_at: Time;
  /** The same as a link, `oc-pair://` and the code. */
  pair_url: string;
  /** To type in, or to scan as a QR code. */
  setup_code: string;
  /** Where the node connects. */
  url: string;
};

/** A request for a setup code. */
export type SetupRequest = {
  /** For people. Absent: the node's own name. */
  name?: string;
  /** Names or globs of the tools that it may offer. Absent: those that it declares when it pairs. */
  tools?: Array<string>;
  /** Where the node connects: ws:// or wss://, with the path. Absent: the gateway's public URL or, if it has none, the address of this request. */
  url?: string;
  /** The node's user. Absent: the approver. */
  user?: string;
};

/** How people sign in at the console. */
export type SignIn = {
  /** absent: with a key or token only. */
  oidc?: OIDC;
};

/** Target selects the session. All members must match. */
export type Target = {
  device_id?: string;
  labels?: Labels;
  session_id?: string;
  /** The user as named by credentials. The gateway's own credentials name no user, so nothing matches. */
  user_id?: string;
};

/** A tenant in numbers, for fleet operators. It has nothing of the tenant's content. */
export type Tenant = {
  budget: DayBudget;
  budget_at?: Time;
  /** The credential that set the budget. Absent: it was never set. */
  budget_by?: string;
  /** Connected, approximately. */
  devices: number;
  /** When it was first listed. */
  since: Time;
  tenant: string;
  /** Since midnight UTC, a few seconds late. */
  today: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
  /** Whether a credential of it was ever used. If not, an operator may create its first key. */
  used: boolean;
};

/** What a tenant spent on a day. */
export type TenantDay = {
  day: string;
  spent: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
};

/** A tenant with what it spent on the last days. */
export type TenantDetails = {
  budget: DayBudget;
  budget_at?: Time;
  /** The credential that set the budget. Absent: it was never set. */
  budget_by?: string;
  /** The latest first; without days on which nothing was spent. */
  days: Array<TenantDay>;
  /** Connected, approximately. */
  devices: number;
  /** When it was first listed. */
  since: Time;
  tenant: string;
  /** Since midnight UTC, a few seconds late. */
  today: {
    /** Of arguments and outputs. */
    bytes?: number;
    /** Admitted. */
    calls?: number;
    /** Money for models, in millionths of the unit of currency. */
    cost_micros?: number;
    /** Of models, input and output. */
    tokens?: number;
  };
  /** Whether a credential of it was ever used. If not, an operator may create its first key. */
  used: boolean;
};

/** A page of the tenants, by name. */
export type TenantList = {
  next_cursor?: NextCursor;
  tenants: Array<Tenant>;
};

/** A request for a ticket of an event stream. */
export type TicketRequest = {
  /** The stream: `/api/events`, or `/api/calls/{id}/events`. */
  path?: string;
};

/** In UTC, with milliseconds: `2026-01-31T12:00:00.000Z`. */
export type Time = string;

/** The number of tokens that a turn used. */
export type TokenUsage = {
  input_tokens: number;
  output_tokens: number;
};

/** The definition of a tool, and whether the caller may call it. */
export type Tool = {
  annotations?: Annotations;
  /** Each call of the caller needs a person's approval. */
  approval?: "required";
  description: string;
  effects?: ToolEffects;
  /** Whether the policy lets the caller call it. */
  enabled: boolean;
  name: ToolName;
  output_schema?: OutputSchema;
  parameters: Parameters;
  /** Why the caller may not call it; absent if it may. */
  reason?: string;
  /** Equal for equal definitions, including descriptions and annotations. */
  schema_hash: string;
  security_level?: "safe" | "user_confirm" | "admin_only";
  tags?: ToolTags;
  /** The timeout of a call that sets none. */
  timeout_ms?: number;
};

/** A decision on tools of a paired device. */
export type ToolDecision = {
  /** Waiting tools, each with the hash of the reviewed definition. */
  approve?: Array<ApprovedTool>;
  /** Names of tools the device must not offer. */
  reject?: Array<string>;
};

/** What a tool declares about its calls. If it declares no class, its annotations imply one. It comes from the device and is not verified. */
export type ToolEffects = {
  class?: "read" | "write" | "external" | "people";
  cost?: "free" | "metered" | "high";
  /** The app must be in the foreground. A call for a device in the background is refused or waits in the queue. */
  needs_foreground?: boolean;
  /** The platform's permission that the tool uses, such as camera. */
  permission?: string;
  /** How long a call usually takes. It sets no timeout. */
  typical_ms?: number;
};

/** A row for each definition. */
export type ToolGroupList = {
  next_cursor?: NextCursor;
  tools: Array<GroupRow>;
};

/** A row for each tool of each session. */
export type ToolList = {
  next_cursor?: NextCursor;
  tools: Array<ToolRow>;
};

/** The effects and tags of an MCP tool, as `farhand/effects` and `farhand/tags`. */
export type ToolMeta = Record<string, unknown>;

/** Letters and decimal digits of any script, and `_`; after the first character marks, `.` and `-` also. */
export type ToolName = string;

/** A tool of a session, or a built-in tool. Built-in tools come first, and have no session and no pod. */
export type ToolRow = {
  annotations?: Annotations;
  /** Each call of the caller needs a person's approval. */
  approval?: "required";
  description: string;
  device_id?: string;
  device_name?: string;
  effects?: ToolEffects;
  /** Whether the policy lets the caller call it. */
  enabled: boolean;
  labels?: Labels;
  /** Of a sleeping device. */
  last_seen?: string;
  name: ToolName;
  output_schema?: OutputSchema;
  parameters: Parameters;
  /** The pod that holds the device's connection. */
  pod?: string;
  /** Absent unless the request has the parameter. */
  presence?: "connected" | "sleeping";
  /** Why the caller may not call it; absent if it may. */
  reason?: string;
  /** Equal for equal definitions, including descriptions and annotations. */
  schema_hash: string;
  security_level?: "safe" | "user_confirm" | "admin_only";
  session_id?: SessionID;
  /** For remote tools the session's id, for built-in ones `builtin`. */
  source: string;
  source_type: "builtin" | "mcp" | "remote";
  tags?: ToolTags;
  /** The timeout of a call that sets none. */
  timeout_ms?: number;
  user_id?: string;
};

/** Short names for filters, in order. */
export type ToolTags = Array<string>;

/** A conversation, or the last part of a long one. */
export type Transcript = {
  /** A turn is running. */
  busy: boolean;
  /** Of the whole conversation. */
  message_count: number;
  messages: Array<Message>;
  session_id: SessionID;
  /** Empty while it has none. */
  title: string;
};

/** The response to a message after the turn has ended. */
export type TurnAnswer = {
  duration_ms: number;
  /** The model's whole text of this turn. */
  full_response: string;
  /** Of the whole conversation. */
  message_count: number;
  session_id: SessionID;
  stop_reason?: TurnStop;
  title?: string;
  /** In the order of the model's requests. */
  tool_calls: Array<TurnCall>;
  turn_id: string;
  usage: TokenUsage;
};

/** About an approval. `approval_request`: the turn waits for a person. `approval_decided`: the outcome. */
export type TurnApproval = {
  /** With `by: two`: the first person who allowed the call. */
  allowed_by?: string;
  /** Who may decide, if known: users, names of keys, other holders of the role. */
  approvers?: Array<string>;
  /** As they will reach the tool. */
  args?: Record<string, unknown>;
  args_digest: string;
  /** The complete arguments for people. Invisible and ambiguous characters are escaped. */
  args_text: string;
  /** Where argument values come from, if known. */
  arguments?: Array<ArgumentSource>;
  /** Who may allow the call by the policy. Absent: every approver except the calling credential. */
  by?: "anyone" | "other" | "two";
  call_id: string;
  /** Of the person who decided. */
  comment?: string;
  created_at: Time;
  decided_at?: Time;
  /** A user, a credential or a device; two of them with `by: two`. */
  decided_by?: string;
  device_id?: string;
  device_name?: string;
  /** The devices of a group call, instead of the three members above. The approval covers one call of each. */
  devices?: Array<ApprovedDevice>;
  /** What the tool declares about its calls. */
  effects?: ToolEffects;
  /** Without a decision until then, the call is denied. */
  expires_at: Time;
  id: ApprovalID;
  /** The device_id of a paired device that looks similar. */
  looks_like?: string;
  /** Whether the reader may allow the call now. */
  may_decide: boolean;
  /** `async`: no caller waits, and the call starts when it is allowed. */
  mode: "sync" | "async";
  /** Why the call needs approval. */
  reason: string;
  /** Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters outside ASCII. */
  remarks: Array<"long" | "multiline" | "hidden" | "foreign">;
  requester: Requester;
  /** The id of the policy rule that requires it. */
  rule: string;
  /** The digest of the tool's definition. The approval is valid only for this definition. */
  schema_hash: string;
  scope?: "once" | "always_tool" | "always_args";
  /** The target session. Absent for built-in tools. */
  session_id?: SessionID;
  state: ApprovalState;
  tool: string;
  turn_id?: string;
  type: "approval_request" | "approval_decided";
  /** The device's user, or the requester. Absent: no user. */
  user_id?: string;
};

/** A call of a tool in a turn. */
export type TurnCall = {
  /** An object, or the model's text if that was not JSON. */
  args: unknown;
  /** As in /api/calls. */
  id: string;
  name: string;
  output: string;
  parts?: PartList;
  status: TurnCallStatus;
};

/** The progress of a call in a turn. */
export type TurnCallStatus = "pending" | "executing" | "completed" | "failed";

/** The end of a turn. */
export type TurnDone = {
  duration_ms: number;
  full_response: string;
  message_count: number;
  stop_reason?: TurnStop;
  turn_id: string;
  type: "done";
  usage: TokenUsage;
};

/** An event of a turn, by its `type`. The last event is `done`, `aborted` or `error`. */
export type TurnEvent = TurnText | TurnToolCall | TurnToolResult | TurnPrompt | TurnTitle | TurnMark | TurnApproval | TurnDone | TurnFailed;

/** The turn failed. */
export type TurnFailed = {
  /** As in the chat protocol: `PROVIDER_ERROR`, … */
  code: string;
  message: string;
  /** How long to wait before a retry. */
  retry_after_ms?: number;
  type: "error";
};

/** TurnMark marks a point of a turn. `chunk_reset`: the whole text follows and replaces the streamed text. `aborted`: a request ended the turn; its messages so far are stored. */
export type TurnMark = {
  type: "chunk_reset" | "aborted";
};

/** TurnPrompt is, with `debug`, the next model request. */
export type TurnPrompt = {
  estimated_tokens: number;
  messages: Array<PromptMessage>;
  type: "debug_prompt";
};

/** Why the model stopped: it was done, reached its token limit, called tools, or refused. */
export type TurnStop = "stop" | "tool_calls" | "length" | "content_filter";

/** A piece of the answer, or of the model's reasoning. */
export type TurnText = {
  content: string;
  type: "chunk" | "thinking";
};

/** The conversation's new title. */
export type TurnTitle = {
  title: string;
  type: "title_updated";
};

/** A tool is being called. */
export type TurnToolCall = {
  args: unknown;
  id: string;
  name: string;
  status: TurnCallStatus;
  type: "tool_call";
};

/** A call has ended. */
export type TurnToolResult = {
  id: string;
  name: string;
  output: string;
  parts?: PartList;
  status: TurnCallStatus;
  type: "tool_result";
};

/** A slot. PUT the bytes to `url`, with Content-Length and Content-Type as asked for, and name the upload in arguments as `{"$upload": "upload_id"}`. The device gets `{"url", "sha256", "size", "mime_type"}` in its place. */
export type Upload = {
  /** For the upload. */
  expires_at: Time;
  upload_id: string;
  /** Relative to the gateway. */
  url: string;
};

/** UploadRequest asks for a slot for a file that is an argument of a call. */
export type UploadRequest = {
  /** Default: `application/octet-stream`. */
  mime_type?: string;
  sha256: string;
  /** In bytes. */
  size: number;
};

/** A page of usage, and its days. */
export type UsageList = {
  from: string;
  next_cursor?: NextCursor;
  to: string;
  usage: Array<UsageRow>;
};

/** A row of usage. Fields that rows are not grouped by are absent. */
export type UsageRow = {
  /** Of arguments. */
  bytes_in: number;
  /** Of outputs. */
  bytes_out: number;
  calls: number;
  day?: string;
  /** Calls that did not run, and calls whose tool failed. */
  failures: number;
  /** Read by models. */
  input_tokens: number;
  /** For identities without a user: the credential's name. Absent if it has none. */
  key?: string;
  /** How long the calls took together. */
  ms: number;
  output_tokens: number;
  tool?: string;
  /** Empty: identities without a user. Absent if rows are not grouped by user. */
  user?: string;
};

/** A definition of a device's tool. */
export type WaitingDefinition = {
  annotations?: Annotations;
  description: string;
  effects?: ToolEffects;
  name: string;
  output_schema?: OutputSchema;
  parameters: Parameters;
  security_level?: "safe" | "user_confirm" | "admin_only";
  tags?: ToolTags;
  timeout_ms?: number;
};

/** A tool that waits for approval. */
export type WaitingTool = {
  annotations?: Annotations;
  /** A tool of this name is approved with another definition. */
  approved_hash?: string;
  before?: WaitingDefinition;
  /** The changed fields. */
  changed?: Array<string>;
  description: string;
  effects?: ToolEffects;
  hash: string;
  name: string;
  output_schema?: OutputSchema;
  parameters: Parameters;
  security_level?: "safe" | "user_confirm" | "admin_only";
  tags?: ToolTags;
  timeout_ms?: number;
};

/** Wake says how a device is woken while it sleeps. Which fields are required depends on `kind`. */
export type Wake = {
  /** Webpush and unifiedpush: of the subscription. */
  endpoint?: string;
  /** Webpush and unifiedpush: of the subscription. */
  keys?: WakeKeys;
  /** The service that the push goes to. The gateway must have credentials for it. */
  kind: "webhook" | "webpush" | "unifiedpush" | "fcm" | "apns";
  /** The minimum time between two pushes. */
  min_interval_ms?: number;
  /** No pushes in this part of each day. */
  quiet?: QuietHours;
  /** Fcm and apns: of the device. */
  token?: string;
  /** apns: the bundle id of the app. */
  topic?: string;
  /** webhook: gets a signed request. */
  url?: string;
};

/** The keys of a push subscription, in base64url. */
export type WakeKeys = {
  auth: string;
  p256dh: string;
};
