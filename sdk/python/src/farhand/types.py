"""The types of the gateway's HTTP API. Generated from the OpenAPI document by `make docs`.

Answers are dictionaries of these types as the gateway sent them, so they can have members that this version does not
know.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class _ActivityTurn(TypedDict):
    """The members of ActivityTurn that are always there."""

    id: str
    model: str


class ActivityTurn(_ActivityTurn, total=False):
    """With `turn.started` and `turn.finished`."""

    calls: int
    """Tool calls requested by the model."""
    code: str
    """Of the error."""
    duration_ms: int
    input_tokens: int
    outcome: str
    """Done, aborted or error."""
    output_tokens: int
    user_id: str
    """The user who started the turn."""


class _Activity(TypedDict):
    """The members of Activity that are always there."""

    at: Time
    pod: str
    """The pod that reports it."""
    type: ActivityType


class Activity(_Activity, total=False):
    """A feed entry."""

    approval: ApprovalNote
    call: CallRecord
    device_id: str
    reason: str
    session_id: SessionID
    tools: list[ToolName]
    """With `session.tools`: all tools now offered."""
    turn: ActivityTurn
    """With `turn.started` and `turn.finished`."""
    user_id: str
    """The session's user."""


ActivityType = Literal[
    "session.connected",
    "session.updated",
    "session.disconnected",
    "session.tools",
    "call.finished",
    "call.progress",
    "turn.started",
    "turn.finished",
    "pod.died",
    "approval.requested",
    "approval.decided",
    "budget.warning",
    "budget.spent",
]
"""The type of a feed entry."""


class Annotations(TypedDict, total=False):
    """MCP hints. They come from the device and are not verified."""

    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool
    readOnlyHint: bool


class AnthropicTool(TypedDict):
    """A tool in the format of Anthropic's messages."""

    description: str
    input_schema: Parameters
    name: ModelName


class _AnthropicToolList(TypedDict):
    """The members of AnthropicToolList that are always there."""

    tools: list[AnthropicTool]


class AnthropicToolList(_AnthropicToolList, total=False):
    """Tools in the format of Anthropic's API."""

    names: ChangedNames
    next_cursor: NextCursor
    output_schemas: OutputSchemas


class _Approval(TypedDict):
    """The members of Approval that are always there."""

    args_digest: str
    args_text: str
    """The complete arguments for people. Invisible and ambiguous characters are escaped."""
    call_id: str
    created_at: Time
    expires_at: Time
    """Without a decision until then, the call is denied."""
    id: ApprovalID
    may_decide: bool
    """Whether the reader may allow the call now."""
    mode: Literal["sync", "async"]
    """`async`: no caller waits, and the call starts when it is allowed."""
    reason: str
    """Why the call needs approval."""
    remarks: list[Literal["long", "multiline", "hidden", "foreign"]]
    """Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters
    outside ASCII.
    """
    requester: Requester
    rule: str
    """The id of the policy rule that requires it."""
    schema_hash: str
    """The digest of the tool's definition. The approval is valid only for this definition."""
    state: ApprovalState
    tool: str


class Approval(_Approval, total=False):
    """An approval with its arguments, as sent and as unambiguous text."""

    allowed_by: str
    """With `by: two`: the first person who allowed the call."""
    approvers: list[str]
    """Who may decide, if known: users, names of keys, other holders of the role."""
    args: dict[str, Any]
    """As they will reach the tool."""
    arguments: list[ArgumentSource]
    """Where argument values come from, if known."""
    by: Literal["anyone", "other", "two"]
    """Who may allow the call by the policy. Absent: every approver except the calling credential."""
    comment: str
    """Of the person who decided."""
    decided_at: Time
    decided_by: str
    """A user, a credential or a device; two of them with `by: two`."""
    device_id: str
    device_name: str
    devices: list[ApprovedDevice]
    """The devices of a group call, instead of the three members above. The approval covers one call of each."""
    effects: ToolEffects
    """What the tool declares about its calls."""
    looks_like: str
    """The device_id of a paired device that looks similar."""
    scope: Literal["once", "always_tool", "always_args"]
    session_id: SessionID
    """The target session. Absent for built-in tools."""
    turn_id: str
    user_id: str
    """The device's user, or the requester. Absent: no user."""


ApprovalID = str
"""ApprovalID names an approval or a grant."""


class ApprovalList(TypedDict):
    """The open approvals, in order of expiry."""

    approvals: list[ApprovalRow]


class _ApprovalNote(TypedDict):
    """The members of ApprovalNote that are always there."""

    call_id: str
    expires_at: Time
    id: ApprovalID
    state: ApprovalState
    tool: str


class ApprovalNote(_ApprovalNote, total=False):
    """An approval in the feed."""

    decided_by: str
    user_id: str


class _ApprovalRow(TypedDict):
    """The members of ApprovalRow that are always there."""

    args_digest: str
    call_id: str
    created_at: Time
    expires_at: Time
    """Without a decision until then, the call is denied."""
    id: ApprovalID
    may_decide: bool
    """Whether the reader may allow the call now."""
    mode: Literal["sync", "async"]
    """`async`: no caller waits, and the call starts when it is allowed."""
    reason: str
    """Why the call needs approval."""
    requester: Requester
    rule: str
    """The id of the policy rule that requires it."""
    schema_hash: str
    """The digest of the tool's definition. The approval is valid only for this definition."""
    state: ApprovalState
    tool: str


class ApprovalRow(_ApprovalRow, total=False):
    """An approval in a list, without the arguments of its call."""

    allowed_by: str
    """With `by: two`: the first person who allowed the call."""
    approvers: list[str]
    """Who may decide, if known: users, names of keys, other holders of the role."""
    arguments: list[ArgumentSource]
    """Where argument values come from, if known."""
    by: Literal["anyone", "other", "two"]
    """Who may allow the call by the policy. Absent: every approver except the calling credential."""
    comment: str
    """Of the person who decided."""
    decided_at: Time
    decided_by: str
    """A user, a credential or a device; two of them with `by: two`."""
    device_id: str
    device_name: str
    devices: list[ApprovedDevice]
    """The devices of a group call, instead of the three members above. The approval covers one call of each."""
    effects: ToolEffects
    """What the tool declares about its calls."""
    looks_like: str
    """The device_id of a paired device that looks similar."""
    scope: Literal["once", "always_tool", "always_args"]
    session_id: SessionID
    """The target session. Absent for built-in tools."""
    turn_id: str
    user_id: str
    """The device's user, or the requester. Absent: no user."""


ApprovalState = Literal["pending", "allowed", "denied", "expired", "withdrawn"]
"""The state of an approval. `expired`: no decision came in time, so the call was denied. `withdrawn`: the call ended
first.
"""


class _ApprovedDevice(TypedDict):
    """The members of ApprovedDevice that are always there."""

    session_id: str


class ApprovedDevice(_ApprovedDevice, total=False):
    """One of the devices that an approval covers."""

    device_id: str
    name: str
    """As the device calls itself."""
    user_id: str


class ApprovedTool(TypedDict):
    """A tool of a device with its approved definition."""

    hash: str
    """Of the definition."""
    name: str


class _ArgumentSource(TypedDict):
    """The members of ArgumentSource that are always there."""

    pointer: str
    """JSON Pointer into the arguments."""
    source: str
    """Who named the value first; `model`: it appears first in this call."""
    value: str
    """Shortened."""


class ArgumentSource(_ArgumentSource, total=False):
    """Where a value in the arguments comes from."""

    record: str
    """How the record of a result begins that the value is a field of."""


AuditAction = Literal[
    "call",
    "register",
    "login",
    "key.create",
    "key.revoke",
    "revoke",
    "pair.ask",
    "pair.look",
    "pair.decide",
    "pair.setup",
    "device.update",
    "device.revoke",
    "device.tools",
    "approval.ask",
    "approval.decide",
    "grant.revoke",
    "policy.reload",
    "session.kick",
    "session.rename",
    "turn.abort",
    "call.cancel",
    "doctor",
    "backup",
    "tenant.key",
    "tenant.budget",
    "budget.warning",
    "budget.spent",
    "key.rotate",
    "device.rotate",
    "device.wake",
    "user.erase",
    "user.default_device",
    "device.import",
]
"""The action that was done or denied."""


class AuditLineActor(TypedDict, total=False):
    """Part of another type."""

    credential: str
    """The id of the credential, which is no secret."""
    name: str
    """What people call the credential."""
    roles: list[str]
    source: str
    """The address or network that the request came from."""
    user: str


class _AuditLine(TypedDict):
    """The members of AuditLine that are always there."""

    action: AuditAction
    actor: AuditLineActor
    at: Time
    id: str
    outcome: AuditOutcome
    pod: str


class AuditLine(_AuditLine, total=False):
    """A line of the audit log."""

    args_digest: str
    """SHA-256 of the arguments' text, in hex; that of the call's record and of its approval."""
    call_id: str
    code: str
    """Of the error."""
    device_id: str
    omitted: int
    """Lines of this kind that were left out before this one."""
    reason: str
    """As returned to the caller; a long one is cut."""
    rule: str
    """What of the policy decided, or which limit was reached."""
    session_id: str
    target: str
    """The subject of an admin action: the id of a key, a device, an approval or a pairing."""
    tool: str
    turn_id: str


AuditOutcome = Literal["allowed", "denied", "failed", "seen"]
"""The outcome of an action. allowed: it was permitted, or done. denied: a rule or a person denied it. failed: it could
not be done. seen: it was viewed without a decision.
"""


class _AuditPage(TypedDict):
    """The members of AuditPage that are always there."""

    lines: list[AuditLine]


class AuditPage(_AuditPage, total=False):
    """A page of the audit log, the newest line first."""

    next_cursor: NextCursor


class BudgetStateLimits(TypedDict, total=False):
    """Part of another type."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class BudgetStateSpent(TypedDict, total=False):
    """Part of another type."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class BudgetState(TypedDict):
    """A budget that applies to the caller, and what is spent of it today."""

    limits: BudgetStateLimits
    per: Literal["tenant", "identity"]
    reset_in_seconds: int
    """Until it begins anew."""
    spent: BudgetStateSpent


class _CallAccepted(TypedDict):
    """The members of CallAccepted that are always there."""

    call_id: str
    mode: Literal["async"]
    state: CallState


class CallAccepted(_CallAccepted, total=False):
    """The answer to an asynchronous call, which continues without its request."""

    approval_id: ApprovalID
    """The approval that an asynchronous call waits or waited for. The call's timeout starts when a person allows it."""
    approvers: list[str]
    """Who may decide, if known."""
    device_id: str
    expires_at: str
    """When a queued call expires if its device has not taken it."""
    place: int
    """The place of a queued call in the queue of its device, from 1 on."""
    session_id: SessionID
    """Absent for built-in tools."""


class _CallAnswer(TypedDict):
    """The members of CallAnswer that are always there."""

    call_id: str
    duration_ms: int
    output: str
    state: Literal["succeeded", "failed"]
    success: bool
    """Whether the tool succeeded. A tool that ran and failed is not an error of the gateway."""


class CallAnswer(_CallAnswer, total=False):
    """The result of a call. The server writes it by hand, because it is the answer that it gives most."""

    device_id: str
    error: str
    output_violations: OutputViolations
    parts: Parts
    session_id: SessionID
    """Absent for built-in tools."""
    structured: Any
    """The output as JSON, if the device sent JSON other than a string."""


class _CallEvent(TypedDict):
    """The members of CallEvent that are always there."""

    at: Time
    call_id: str
    type: Literal["state", "progress", "truncated"]


class CallEvent(_CallEvent, total=False):
    """A line of a call's log."""

    chunk: str
    """A part of the output."""
    message: str
    progress: float
    state: CallState
    total: float


class _CallList(TypedDict):
    """The members of CallList that are always there."""

    calls: list[CallRecord]


class CallList(_CallList, total=False):
    """A page of the finished calls."""

    next_cursor: NextCursor


class CallRecordProblem(TypedDict):
    """For calls without a result."""

    code: ErrorCode
    detail: str


class CallRecordTimelineItem(TypedDict):
    """Part of another type."""

    at: Time
    state: CallState


class _CallRecord(TypedDict):
    """The members of CallRecord that are always there."""

    call_id: str
    dispatched: Dispatched
    late: bool
    """The answer came after the caller had received another outcome."""
    mode: Literal["sync", "async", "all", "first", "quorum", "race"]
    """Of a group call, its own: `all`, `first`, `quorum` or `race`."""
    pod: str
    """The pod that received the request."""
    state: CallState
    status: CallStatus
    timeline: list[CallRecordTimelineItem]
    timeout_ms: int
    tool: str


class CallRecord(_CallRecord, total=False):
    """The record of a call. The members from success on are as in CallAnswer. They are absent until the device has
    answered.
    """

    approval_id: ApprovalID
    """The approval that the call waits or waited for. The timeout of an asynchronous call starts when a person allows
    it.
    """
    args_digest: str
    """Equal for equal arguments. The arguments are not stored."""
    counts: GroupCounts
    """Of a group call that has ended."""
    device_id: str
    error: str
    expires_at: str
    """When a queued call expires."""
    output: str
    output_kept: Literal[False]
    """Only false: the output was not stored, as for short synchronous calls. Then output, structured and parts are
    absent.
    """
    output_violations: OutputViolations
    owner: str
    """The pod that delivered the call to the device."""
    parent_id: str
    """The group call that this call is a child of."""
    parts: Parts
    place: int
    """Of a queued call: its place in the queue of its device, from 1 on, if one call was read."""
    problem: CallRecordProblem
    """For calls without a result."""
    retryable: bool
    """For calls without a result: nothing ran, and a retry may succeed."""
    session_id: SessionID
    source: str
    """builtin: a built-in tool. mcp:NAME: a tool of that MCP server. Absent for tools of devices."""
    structured: Any
    success: bool
    """Present, like the next four members, once the device has answered. Lists and feeds omit the tool's output."""
    trace_id: str
    """The trace of the request, if the gateway makes traces."""
    turn_id: str
    """The turn of a conversation in which the call was made. Absent outside conversations."""
    user_id: str
    """Of the caller."""


class CallRequest(TypedDict, total=False):
    """A request for a call. An empty body means {}. Duplicate keys and null are rejected: omit the field instead."""

    args: dict[str, Any]
    """Validated against the tool's parameters, then passed to the device exactly as sent. At most 64 levels deep."""
    idempotency_key: IdempotencyKey
    mode: Literal["sync", "async"]
    """Default: `sync`. `async`: respond with 202 once the call has a record; the call continues in the background."""
    ordered: Ordered
    queue: Queue
    """Lets a call to a sleeping device wait for it. `target` must then name one device."""
    select: Literal["any", "newest"]
    """The session to use if several match. `any`: any of them. `newest`: the last connected of those that define the
    tool like the longest connected one. Among several with the same `device_id`, both use the longest connected one.
    Default: the error `ambiguous_target`.
    """
    target: Target
    timeout_ms: int
    """How long to wait for the device, as an integer without exponent. Default: the tool's timeout, otherwise the
    gateway's (30 s). Longer timeouts are cut to the gateway's maximum.
    """


CallState = Literal[
    "queued",
    "accepted",
    "routed",
    "delivered",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "lost",
    "rejected",
    "expired",
]
"""The state of a call. The first five are temporary, the others final. After `cancelled`, `timed_out` and `lost`, a
late answer of the device is still stored in the record.
"""

CallStatus = Literal["pending", "executing", "completed", "failed"]
"""CallStatus summarizes `state`: nothing runs yet (`accepted`, `routed`), the tool runs (`delivered`, `running`), it
succeeded (`succeeded`), or it did not.
"""


class Challenge(TypedDict):
    """A nonce for a paired device to sign."""

    expires_in: int
    """Seconds."""
    nonce: str
    """The text to sign is `farhand-device-v1`, a line feed, this nonce, a line feed, and the device_id."""


ChangedNames = dict[str, "ToolName"]
"""ChangedNames maps each changed name to the name to call the tool by."""


class _CompletionChoicesItemMessage(TypedDict):
    """The members of CompletionChoicesItemMessage that are always there."""

    content: Union[str, None]
    """The model's text; null if it only calls tools."""
    refusal: Union[str, None]
    """Why the model refused to answer."""
    role: Literal["assistant"]


class CompletionChoicesItemMessage(_CompletionChoicesItemMessage, total=False):
    """Part of another type."""

    reasoning_content: str
    tool_calls: list[CompletionCall]


class CompletionChoicesItem(TypedDict):
    """Part of another type."""

    finish_reason: FinishReason
    index: Literal[0]
    logprobs: Union[dict[str, Any], None]
    """Always null."""
    message: CompletionChoicesItemMessage


class Completion(TypedDict):
    """An answer of /v1/chat/completions, in OpenAI's format."""

    choices: list[CompletionChoicesItem]
    created: int
    """Unix time in seconds."""
    id: str
    model: str
    object: Literal["chat.completion"]
    usage: CompletionUsage


class CompletionCallFunction(TypedDict):
    """Part of another type."""

    arguments: str
    """As written by the model; may be invalid JSON."""
    name: str


class _CompletionCall(TypedDict):
    """The members of CompletionCall that are always there."""

    function: CompletionCallFunction
    id: str
    type: Literal["function"]


class CompletionCall(_CompletionCall, total=False):
    """A call of one of the caller's own tools. Each is in one chunk."""

    index: int
    """In streams only."""


class _CompletionChunk(TypedDict):
    """The members of CompletionChunk that are always there."""

    choices: list[CompletionChunkChoice]
    """Empty in the chunk with the token counts."""
    created: int
    id: str
    model: str
    object: Literal["chat.completion.chunk"]


class CompletionChunk(_CompletionChunk, total=False):
    """A part of a streamed completion."""

    usage: Union[CompletionUsage, None]
    """With `include_usage`: null except in the last chunk."""


class CompletionChunkChoice(TypedDict):
    """The only choice of a CompletionChunk."""

    delta: CompletionDelta
    finish_reason: Union[FinishReason, None]
    index: Literal[0]
    logprobs: Union[dict[str, Any], None]
    """Always null."""


class CompletionDelta(TypedDict, total=False):
    """The content that a CompletionChunk adds."""

    content: str
    reasoning_content: str
    refusal: str
    role: Literal["assistant"]
    """In the first chunk."""
    tool_calls: list[CompletionCall]


CompletionPiece = Union["CompletionChunk", "OpenAIError"]


class _CompletionRequestResponseFormatJsonSchema(TypedDict):
    """The members of CompletionRequestResponseFormatJsonSchema that are always there."""

    name: ModelName
    schema: dict[str, Any]


class CompletionRequestResponseFormatJsonSchema(_CompletionRequestResponseFormatJsonSchema, total=False):
    """Part of another type."""

    description: Union[str, None]
    strict: Union[bool, None]


class _CompletionRequestResponseFormat(TypedDict):
    """The members of CompletionRequestResponseFormat that are always there."""

    type: Literal["text", "json_object", "json_schema"]


class CompletionRequestResponseFormat(_CompletionRequestResponseFormat, total=False):
    """A JSON response is one text, without the model's text next to calls of the device's tools."""

    json_schema: CompletionRequestResponseFormatJsonSchema


class CompletionRequestStreamOptions(TypedDict, total=False):
    """Part of another type."""

    include_obfuscation: Union[bool, None]
    include_usage: Union[bool, None]
    """The last chunk has the token counts."""


class CompletionRequestToolChoiceOption2Function(TypedDict):
    """Part of another type."""

    name: str


class CompletionRequestToolChoiceOption2(TypedDict):
    """Part of another type."""

    function: CompletionRequestToolChoiceOption2Function
    type: Literal["function"]


class _CompletionRequestToolsItemFunction(TypedDict):
    """The members of CompletionRequestToolsItemFunction that are always there."""

    name: ModelName


class CompletionRequestToolsItemFunction(_CompletionRequestToolsItemFunction, total=False):
    """Part of another type."""

    description: Union[str, None]
    parameters: Union[dict[str, Any], None]
    """JSON Schema of the arguments."""
    strict: Union[bool, None]
    """The model must follow the schema."""


class CompletionRequestToolsItem(TypedDict):
    """Part of another type."""

    function: CompletionRequestToolsItemFunction
    type: Literal["function"]


class _CompletionRequest(TypedDict):
    """The members of CompletionRequest that are always there."""

    messages: list[CompletionRequestMessage]
    """Messages of the roles `system` and `developer` come before all others. Each call of an assistant must be followed
    by its result.
    """
    model: str
    """A name from /v1/models, or `farhand` for the default."""


class CompletionRequest(_CompletionRequest, total=False):
    """The supported fields of OpenAI's request. Other fields, and values that the model's provider does not support,
    are rejected with an error that names the field. null means absent.
    """

    frequency_penalty: Union[float, None]
    logit_bias: Union[dict[str, int], None]
    logprobs: Union[bool, None]
    max_completion_tokens: Union[int, None]
    """The same; takes precedence."""
    max_tokens: Union[int, None]
    metadata: Union[dict[str, str], None]
    modalities: Union[list[Literal["text"]], None]
    n: Literal[1, None]
    parallel_tool_calls: Union[bool, None]
    presence_penalty: Union[float, None]
    prompt_cache_key: Union[str, None]
    reasoning_effort: Union[str, None]
    """As defined by the model's provider."""
    response_format: Union[CompletionRequestResponseFormat, None]
    """A JSON response is one text, without the model's text next to calls of the device's tools."""
    safety_identifier: Union[str, None]
    seed: Union[int, None]
    service_tier: Union[str, None]
    stop: Union[str, list[str], None]
    store: Union[bool, None]
    stream: Union[bool, None]
    stream_options: Union[CompletionRequestStreamOptions, None]
    temperature: Union[float, None]
    tool_choice: Union[Literal["auto", "none", "required"], CompletionRequestToolChoiceOption2, None]
    """`none`: no tool is offered, including those of the device and the gateway. `required`: if the request has tools,
    the response ends with a call of one; otherwise the model first calls any tool.
    """
    tools: Union[list[CompletionRequestToolsItem], None]
    top_logprobs: Literal[0, None]
    top_p: Union[float, None]
    user: Union[str, None]
    """The user whose device's tools are added, if the header is absent. Passed on to the model's provider."""
    verbosity: Union[str, None]


class _CompletionRequestMessageContentOption2ItemImageUrl(TypedDict):
    """The members of CompletionRequestMessageContentOption2ItemImageUrl that are always there."""

    url: str
    """http:, https: or data:image/. The model's provider fetches it."""


class CompletionRequestMessageContentOption2ItemImageUrl(
    _CompletionRequestMessageContentOption2ItemImageUrl, total=False
):
    """Part of another type."""

    detail: Union[str, None]


class _CompletionRequestMessageContentOption2Item(TypedDict):
    """The members of CompletionRequestMessageContentOption2Item that are always there."""

    type: Literal["text", "image_url", "refusal"]


class CompletionRequestMessageContentOption2Item(_CompletionRequestMessageContentOption2Item, total=False):
    """Part of another type."""

    image_url: CompletionRequestMessageContentOption2ItemImageUrl
    refusal: Union[str, None]
    text: Union[str, None]


class _CompletionRequestMessageToolCallsItemFunction(TypedDict):
    """The members of CompletionRequestMessageToolCallsItemFunction that are always there."""

    name: str


class CompletionRequestMessageToolCallsItemFunction(_CompletionRequestMessageToolCallsItemFunction, total=False):
    """Part of another type."""

    arguments: Union[str, None]


class CompletionRequestMessageToolCallsItem(TypedDict):
    """Part of another type."""

    function: CompletionRequestMessageToolCallsItemFunction
    id: str


class _CompletionRequestMessage(TypedDict):
    """The members of CompletionRequestMessage that are always there."""

    role: Literal["system", "developer", "user", "assistant", "tool"]


class CompletionRequestMessage(_CompletionRequestMessage, total=False):
    """Part of another type."""

    content: Union[str, list[CompletionRequestMessageContentOption2Item], None]
    """Text; from a user also images. Only an assistant's message with tool calls may be empty."""
    refusal: Union[str, None]
    tool_call_id: Union[str, None]
    tool_calls: Union[list[CompletionRequestMessageToolCallsItem], None]


class CompletionUsage(TypedDict):
    """CompletionUsage counts the tokens of a completion."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int


class _CreatedKey(TypedDict):
    """The members of CreatedKey that are always there."""

    created_at: Time
    id: str
    """The id of the key; not secret."""
    key: str
    """The secret key, returned only once."""
    roles: list[Literal["device", "caller", "approver", "admin", "operator"]]
    tenant: str


class CreatedKey(_CreatedKey, total=False):
    """A new API key."""

    context: str
    created_by: str
    """The credential that created it."""
    device_id: str
    expires_at: Time
    """Absent: after 400 days without use."""
    former_secret: FormerSecret
    """The secret before the last rotation, while it works."""
    last_used_at: Time
    """Of the current secret, approximate; absent: never."""
    name: str
    """For people."""
    person: bool
    """Its MCP calls are made by a person's program. Absent: by a model."""
    tools: str
    user_id: str


class DayBudgetIdentity(TypedDict, total=False):
    """By each of its identities: a user, or a credential without one."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class DayBudgetTenant(TypedDict, total=False):
    """By the whole tenant."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class DayBudget(TypedDict, total=False):
    """What may be spent on a day, from midnight to midnight UTC, on all pods together. Absent amounts, and 0: no
    limit.
    """

    identity: DayBudgetIdentity
    """By each of its identities: a user, or a credential without one."""
    tenant: DayBudgetTenant
    """By the whole tenant."""
    warn_percent: int
    """The share of a limit, in percent, from which the gateway warns. Default: 80."""


class _Decision(TypedDict):
    """The members of Decision that are always there."""

    args_digest: str
    args_text: str
    """The complete arguments for people. Invisible and ambiguous characters are escaped."""
    call_id: str
    created_at: Time
    decided: bool
    """Whether this request decided. If not, another request was first, or the approval had expired."""
    expires_at: Time
    """Without a decision until then, the call is denied."""
    id: ApprovalID
    may_decide: bool
    """Whether the reader may allow the call now."""
    mode: Literal["sync", "async"]
    """`async`: no caller waits, and the call starts when it is allowed."""
    reason: str
    """Why the call needs approval."""
    remarks: list[Literal["long", "multiline", "hidden", "foreign"]]
    """Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters
    outside ASCII.
    """
    requester: Requester
    rule: str
    """The id of the policy rule that requires it."""
    schema_hash: str
    """The digest of the tool's definition. The approval is valid only for this definition."""
    state: ApprovalState
    tool: str


class Decision(_Decision, total=False):
    """An approval after a decision: the first one counts."""

    allowed_by: str
    """With `by: two`: the first person who allowed the call."""
    approvers: list[str]
    """Who may decide, if known: users, names of keys, other holders of the role."""
    args: dict[str, Any]
    """As they will reach the tool."""
    arguments: list[ArgumentSource]
    """Where argument values come from, if known."""
    by: Literal["anyone", "other", "two"]
    """Who may allow the call by the policy. Absent: every approver except the calling credential."""
    comment: str
    """Of the person who decided."""
    decided_at: Time
    decided_by: str
    """A user, a credential or a device; two of them with `by: two`."""
    device_id: str
    device_name: str
    devices: list[ApprovedDevice]
    """The devices of a group call, instead of the three members above. The approval covers one call of each."""
    effects: ToolEffects
    """What the tool declares about its calls."""
    grant: Grant
    looks_like: str
    """The device_id of a paired device that looks similar."""
    scope: Literal["once", "always_tool", "always_args"]
    session_id: SessionID
    """The target session. Absent for built-in tools."""
    turn_id: str
    user_id: str
    """The device's user, or the requester. Absent: no user."""


class _DecisionRequest(TypedDict):
    """The members of DecisionRequest that are always there."""

    decision: Literal["allow-once", "allow-always", "deny"]


class DecisionRequest(_DecisionRequest, total=False):
    """A decision on an approval."""

    comment: str
    """One line for the audit log and, with `deny`, for the caller and the model."""
    expires_in_ms: int
    """With `allow-always`: how long the grant lasts; default 30 days."""
    scope: Literal["tool", "arguments"]
    """With `allow-always`: the tool with any arguments, or only with these."""


class DefaultDevice(TypedDict):
    """The device of a user that is called if several match."""

    device_id: str


class _Device(TypedDict):
    """The members of Device that are always there."""

    approved: list[ApprovedTool]
    """With their approved definitions."""
    created_at: Time
    created_by: str
    """The credential that approved it."""
    device_id: str
    id: str
    """Of its credential."""
    online: bool
    """Whether the device is connected now."""
    rejected: list[str]
    tools: list[str]
    """Names and globs that were approved in advance."""
    waiting: list[WaitingTool]


class Device(_Device, total=False):
    """A paired device with its tools."""

    expires_at: Time
    former_secret: FormerSecret
    """The secret before the last rotation, while it works."""
    key_fingerprint: str
    last_pong: LastPong
    last_seen: str
    """Of a sleeping device."""
    last_used: Time
    looks_like: str
    """The device_id of another paired device that looks similar."""
    name: str
    node: bool
    """It is an OpenClaw node."""
    presence: Literal["connected", "sleeping"]
    """Absent unless the request has the parameter `presence`, and for devices that are neither: they never connected,
    or not for long.
    """
    renews_credential: bool
    """It gets a new credential when it next connects."""
    round_trip_ms: RoundTrip
    user_id: str
    waiting_tools: int
    """How many of its tools wait for approval; absent: none."""


class DeviceLimits(TypedDict):
    """The limits of one device. The frames `session_start` and `connected` have the same limits."""

    calls: int
    """That one session has in flight."""
    description_characters: int
    """Kept of a description."""
    frame_burst: float
    """Frames at once."""
    frame_bytes: int
    """Of one message, unless it answers a call."""
    frames_per_second: float
    """On average. Answers to open calls do not count."""
    output_bytes: int
    """Of the output of one call."""
    schema_bytes: int
    """Of the parameters of one tool."""
    schema_depth: int
    """Nesting of the parameters of one tool."""
    tool_bytes: int
    """Of the definitions of all of them."""
    tool_bytes_per_second: int
    """Of definitions that are registered, after twice `tool_bytes` at once."""
    tools: int
    """That one session offers."""


class _DeviceList(TypedDict):
    """The members of DeviceList that are always there."""

    devices: list[DeviceRow]


class DeviceList(_DeviceList, total=False):
    """A page of the paired devices."""

    next_cursor: NextCursor


class _DeviceRow(TypedDict):
    """The members of DeviceRow that are always there."""

    created_at: Time
    created_by: str
    """The credential that approved it."""
    device_id: str
    id: str
    """Of its credential."""
    online: bool
    """Whether the device is connected now."""
    tools: list[str]
    """Names and globs that were approved in advance."""


class DeviceRow(_DeviceRow, total=False):
    """A paired device."""

    expires_at: Time
    former_secret: FormerSecret
    """The secret before the last rotation, while it works."""
    key_fingerprint: str
    last_pong: LastPong
    last_seen: str
    """Of a sleeping device."""
    last_used: Time
    looks_like: str
    """The device_id of another paired device that looks similar."""
    name: str
    node: bool
    """It is an OpenClaw node."""
    presence: Literal["connected", "sleeping"]
    """Absent unless the request has the parameter `presence`, and for devices that are neither: they never connected,
    or not for long.
    """
    renews_credential: bool
    """It gets a new credential when it next connects."""
    round_trip_ms: RoundTrip
    user_id: str
    waiting_tools: int
    """How many of its tools wait for approval; absent: none."""


class _DeviceWake(TypedDict):
    """The members of DeviceWake that are always there."""

    device_id: str
    kind: str
    min_interval_ms: int
    registered_at: Time


class DeviceWake(_DeviceWake, total=False):
    """How a device is woken, without secrets, and when it was."""

    error: str
    """Of the last failure."""
    failures: int
    """Since the last push that the service took."""
    host: str
    """Of the URL or endpoint."""
    last_push: Time
    next_push: Time
    """Planned."""
    quiet: QuietHours
    topic: str
    """apns: the bundle id of the app."""


class Diagnosis(TypedDict):
    """What a pod found when it checked what it uses."""

    findings: list[Finding]
    pod: str


class DisabledTool(TypedDict):
    """A listed tool that the caller may not call."""

    name: ToolName
    reason: str
    """As in the list of tools."""


Dispatched = Literal["no", "yes", "unknown"]
"""Whether the call reached the device, so that the tool may have run."""

ErrorCode = Literal[
    "agent_error",
    "ambiguous_target",
    "approval_denied",
    "budget_exceeded",
    "busy",
    "call_not_found",
    "cancelled",
    "connection_lost",
    "draining",
    "forbidden",
    "hook_cancelled",
    "idempotency_conflict",
    "internal",
    "invalid_arguments",
    "invalid_request",
    "invalid_result",
    "lost",
    "method_not_allowed",
    "needs_foreground",
    "not_connected",
    "not_found",
    "payload_too_large",
    "policy_denied",
    "provider_error",
    "rate_limited",
    "session_not_found",
    "store_unavailable",
    "timeout",
    "tool_not_found",
    "unauthenticated",
    "unsupported_media_type",
]
"""The machine-readable error. New codes may be added."""

EventID = str
"""EventID names an event of a stream, for the header Last-Event-ID."""


class EventTicket(TypedDict):
    """A ticket that opens one event stream, once."""

    expires_in: int
    """Seconds."""
    ticket: str
    url: str
    """The path of the stream with the ticket, for an EventSource."""


class Finding(TypedDict):
    """The result of the check of one part."""

    needed: bool
    """The configuration enables something that needs it."""
    ok: bool
    part: str
    text: str
    """What is available, or what is missing and how to get it."""


FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]
"""Why a completion ends."""


class FirstKeyRequest(TypedDict, total=False):
    """A request for the first key of a tenant, with the role admin."""

    expires_in: int
    """Seconds. Absent: it ends after 400 days without use."""
    name: str
    """For people."""


class _FormerSecret(TypedDict):
    """The members of FormerSecret that are always there."""

    expires_at: Time


class FormerSecret(_FormerSecret, total=False):
    """The secret of a credential before its last rotation."""

    last_used_at: Time
    """Approximate. Absent: never."""


class _Grant(TypedDict):
    """The members of Grant that are always there."""

    approval_id: ApprovalID
    created_at: Time
    expires_at: Time
    granted_by: str
    id: ApprovalID
    requester: Requester
    schema_hash: str
    tool: str


class Grant(_Grant, total=False):
    """What "allow always" has granted."""

    args_digest: str
    """Absent: any arguments."""
    device_id: str
    session_id: SessionID
    user_id: str


class GrantList(TypedDict):
    """All grants."""

    grants: list[Grant]


class GroupAnswerProblem(TypedDict):
    """Why the call ended early."""

    code: ErrorCode
    detail: str


class _GroupAnswer(TypedDict):
    """The members of GroupAnswer that are always there."""

    call_id: str
    """Of the parent."""
    counts: GroupCounts
    mode: GroupMode
    results: list[GroupResult]
    state: Literal["succeeded", "failed", "cancelled", "timed_out", "rejected"]
    """`succeeded`: the call has what its mode asks for, with `all` a success of every device whose call is not
    queued.
    """


class GroupAnswer(_GroupAnswer, total=False):
    """The table of a group call. It is streamed: results come as devices answer."""

    error: str
    """Why the call has not what its mode asks for, if known."""
    problem: GroupAnswerProblem
    """Why the call ended early."""


class GroupCounts(TypedDict):
    """GroupCounts say what became of the devices of a group call. Each device that was called is counted once more, as
    succeeded, failed, cancelled or queued.
    """

    cancelled: int
    """The outcome no longer mattered."""
    devices: int
    """That were called."""
    failed: int
    """The tool failed, or the call has no result."""
    queued: int
    """The call waits for its device."""
    skipped: int
    """Skipped devices matched the target and were not called, as far as known when the call ended: it was decided or
    out of time before, or they connected only after it had begun.
    """
    succeeded: int


GroupMode = Literal["all", "first", "quorum", "race"]
"""When a group call has what it asks for."""


class _GroupRequest(TypedDict):
    """The members of GroupRequest that are always there."""

    tool: ToolName


class GroupRequest(_GroupRequest, total=False):
    """GroupRequest calls one tool of many devices: one parent call with a child call for each device."""

    args: dict[str, Any]
    """The same for every device. Validated against each device's definition of the tool."""
    concurrency: int
    """Devices at a time; default 64."""
    device_timeout_ms: int
    """How long each device may take. Default: the tool's timeout, otherwise the gateway's (30 s)."""
    idempotency_key: IdempotencyKey
    mode: GroupMode
    """`all` (default): every device. `first`: until one succeeds; the others are cancelled. `quorum`: until `quorum`
    devices succeed. `race`: the next device is called after `stagger_ms` without an answer, or after a failure, until
    one succeeds.
    """
    queue: Queue
    """With the mode `all`: calls the devices that sleep, too. Their calls wait for them."""
    quorum: int
    """With the mode `quorum`."""
    select: Literal["all"]
    """Every device that the target matches."""
    stagger_ms: int
    """With the mode `race`; default 500."""
    target: GroupTarget
    """Default: all connected devices that the caller can use and that offer the tool."""
    timeout_ms: int
    """How long the whole call may take. Default: 5 minutes. Longer timeouts are cut to the gateway's maximum."""


class GroupResultProblem(TypedDict):
    """Part of another type."""

    code: ErrorCode
    detail: str


class _GroupResult(TypedDict):
    """The members of GroupResult that are always there."""

    state: CallState


class GroupResult(_GroupResult, total=False):
    """What became of the call of one device: as CallAnswer, or with a problem."""

    call_id: str
    """Of the child."""
    device_id: str
    dispatched: Dispatched
    """With problem: whether the device may have acted."""
    duration_ms: int
    error: str
    expires_at: str
    """Of a queued call."""
    output: str
    """Absent in the answer to a repeated request."""
    output_violations: OutputViolations
    parts: Parts
    place: int
    """Of a queued call, as in CallAccepted."""
    problem: GroupResultProblem
    session_id: SessionID
    structured: Any
    success: bool
    """Absent, like the next four members, without a result."""


class _GroupRow(TypedDict):
    """The members of GroupRow that are always there."""

    description: str
    enabled: bool
    """Whether the policy lets the caller call it."""
    name: ToolName
    parameters: Parameters
    schema_hash: str
    """Equal for equal definitions, including descriptions and annotations."""
    sessions: int
    """Number of connected sessions with exactly this definition. Zero for built-in tools, which come first."""
    source_type: Literal["builtin", "mcp", "remote"]


class GroupRow(_GroupRow, total=False):
    """One definition of a tool."""

    annotations: Annotations
    approval: Literal["required"]
    """Each call of the caller needs a person's approval."""
    effects: ToolEffects
    output_schema: OutputSchema
    reason: str
    """Why the caller may not call it; absent if it may."""
    security_level: Literal["safe", "user_confirm", "admin_only"]
    tags: ToolTags
    timeout_ms: int
    """The timeout of a call that sets none."""


class GroupTarget(TypedDict, total=False):
    """GroupTarget selects devices: by user and labels, which must all match, or by a list of ids."""

    device_ids: list[str]
    labels: Labels
    session_ids: list[str]
    user_id: str


class Health(TypedDict):
    """Health says that the process serves requests."""

    pod: str
    status: Literal["ok"]
    version: str


IdempotencyKey = str
"""IdempotencyKey makes retries safe: the same request with the same key returns the first response, or joins the
running call. A different request with the key fails with `idempotency_conflict`. If a call never reached a device, its
key can be used again.
"""


class ImportReport(TypedDict):
    """ImportReport says what became of imported nodes."""

    nodes: list[ImportedState]
    """In the order of the request."""


class _ImportRequest(TypedDict):
    """The members of ImportRequest that are always there."""

    nodes: list[ImportedNode]


class ImportRequest(_ImportRequest, total=False):
    """A request to pair nodes of an OpenClaw installation."""

    user: str
    """Owner of the nodes. Absent: none in particular."""


class _ImportedNode(TypedDict):
    """The members of ImportedNode that are always there."""

    public_key: str
    """32 bytes in base64url without padding."""
    token_sha256: str
    """The SHA-256 of the node's token. The node connects with the token, and gets a credential of Farhand in its
    place.
    """


class ImportedNode(_ImportedNode, total=False):
    """A node that is paired with an OpenClaw gateway."""

    name: str
    """For people."""
    tools: list[str]
    """Names or globs of tools that it may offer."""


class _ImportedState(TypedDict):
    """The members of ImportedState that are always there."""

    device_id: str
    status: Literal["imported", "exists", "refused"]


class ImportedState(_ImportedState, total=False):
    """What became of an imported node."""

    reason: str
    """With `refused`."""


class _Index(TypedDict):
    """The members of Index that are always there."""

    documentation: str
    """For people; a URL."""
    health: str
    """Whether the process serves requests."""
    mcp: str
    """The endpoint of MCP clients."""
    name: Literal["farhand"]
    openapi: str
    """Every route of the API."""
    ready: str
    """Whether the pod accepts new traffic."""
    version: str


class Index(_Index, total=False):
    """Index names what a gateway serves. Paths are of the same origin."""

    console: str
    """For people; absent: this gateway has none."""


class Kept(TypedDict):
    """What an erasure keeps."""

    until: Time
    """At the latest."""
    what: str


class _Key(TypedDict):
    """The members of Key that are always there."""

    created_at: Time
    id: str
    """The id of the key; not secret."""
    roles: list[Literal["device", "caller", "approver", "admin", "operator"]]
    tenant: str


class Key(_Key, total=False):
    """An API key, without its secret."""

    context: str
    created_by: str
    """The credential that created it."""
    device_id: str
    expires_at: Time
    """Absent: after 400 days without use."""
    former_secret: FormerSecret
    """The secret before the last rotation, while it works."""
    last_used_at: Time
    """Of the current secret, approximate; absent: never."""
    name: str
    """For people."""
    person: bool
    """Its MCP calls are made by a person's program. Absent: by a model."""
    tools: str
    user_id: str


class _KeyList(TypedDict):
    """The members of KeyList that are always there."""

    keys: list[Key]


class KeyList(_KeyList, total=False):
    """A page of the API keys, the oldest first."""

    next_cursor: NextCursor


class KeyRequest(TypedDict, total=False):
    """A request for an API key."""

    context: Literal["main", "group", "group sandboxed"]
    """The participants of conversations that it opens. Default: main."""
    device_id: str
    """The only device_id that a device may use with the key."""
    expires_at: str
    expires_in: int
    """Seconds; instead of expires_at."""
    name: str
    """For people."""
    person: bool
    """Whether its MCP calls are made by a person's program. Default: false: they count as a model's."""
    roles: list[Literal["device", "caller", "approver", "admin", "operator"]]
    """Default: caller."""
    tenant: str
    """A tenant other than the caller's: only with FARHAND_TOKEN."""
    tools: str
    """Globs of tool names, separated by spaces. Absent: all tools."""
    user_id: str
    """The user of the key. Absent: it has no user."""


Labels = dict[str, str]
"""Attributes of a device, by which it can be found."""

LastPong = str
"""When the device last answered a ping of its pod, by the clock of that pod. The pod notes it when it refreshes the
session, three times per `FARHAND_SESSION_TTL`. Absent: not known yet.
"""


class _Limits(TypedDict):
    """The members of Limits that are always there."""

    body_bytes: int
    """Of a request's body."""
    call_timeout_ms: int
    """The timeout of a call when neither the request nor the tool names one."""
    device: DeviceLimits
    max_call_timeout_ms: int
    """The longest timeout that a call gets."""
    max_wait_ms: int
    """The longest `wait_ms`."""
    rates: list[RateLimit]
    streams: int
    """Event streams of one identity that may be open at once on a pod."""


class Limits(_Limits, total=False):
    """The limits of the caller and of devices."""

    budgets: list[BudgetState]
    """What may be spent on a day. Absent: no budget applies to the caller."""


class MCPFailureData(TypedDict, total=False):
    """Part of another type."""

    call_id: str
    candidates: list[dict[str, Any]]
    code: ErrorCode
    dispatched: Dispatched
    errors: list[dict[str, Any]]
    requested: str
    requiredCapabilities: dict[str, Any]
    """What the client must declare."""
    retry_after_ms: int
    retryable: bool
    """Whether a retry is safe and may succeed."""
    supported: list[str]
    """The supported revisions."""
    uri: str
    """The missing resource."""


class _MCPFailure(TypedDict):
    """The members of MCPFailure that are always there."""

    code: int
    """As defined by JSON-RPC and MCP. -32000: an error of the gateway, with its code in `data.code`."""
    message: str
    """For people: the problem and what to do."""


class MCPFailure(_MCPFailure, total=False):
    """Part of another type."""

    data: MCPFailureData


class _MCPMessage(TypedDict):
    """The members of MCPMessage that are always there."""

    jsonrpc: Literal["2.0"]


class MCPMessage(_MCPMessage, total=False):
    """A JSON-RPC message of MCP."""

    error: MCPFailure
    id: Any
    """The id of a request and its response: a string or a whole number."""
    method: str
    params: dict[str, Any]
    result: dict[str, Any]


class _MCPTool(TypedDict):
    """The members of MCPTool that are always there."""

    description: str
    inputSchema: Parameters
    name: ToolName


class MCPTool(_MCPTool, total=False):
    """A tool in the format of MCP's tools/list."""

    _meta: ToolMeta
    annotations: Annotations
    outputSchema: OutputSchema


class _MCPToolList(TypedDict):
    """The members of MCPToolList that are always there."""

    tools: list[MCPTool]


class MCPToolList(_MCPToolList, total=False):
    """Tools in the format of MCP."""

    names: ChangedNames
    next_cursor: NextCursor


class _Me(TypedDict):
    """The members of Me that are always there."""

    chat: bool
    """Whether a language model is configured."""
    pairing: Literal["code", "open", "off"]
    """Which devices may request pairing."""
    roles: list[Literal["device", "caller", "approver", "admin", "operator"]]
    tenant: str


class Me(_Me, total=False):
    """The identity of the caller, and what the gateway is set up for."""

    name: str
    """Of the credential, for people."""
    user_id: str
    """absent: the credential has no user."""


class _MessageSuspectsItem(TypedDict):
    """The members of MessageSuspectsItem that are always there."""

    pointer: str
    """JSON Pointer into the arguments."""
    source: Literal["outside", "model"]
    value: str
    """Shortened."""


class MessageSuspectsItem(_MessageSuspectsItem, total=False):
    """Part of another type."""

    where: str
    """Where the value was found."""


class MessageToolCallsItem(TypedDict):
    """Part of another type."""

    args: Any
    """An object, or the model's text if that was not JSON."""
    id: str
    name: str


class _Message(TypedDict):
    """The members of Message that are always there."""

    content: str
    role: Literal["system", "user", "assistant", "tool"]


class Message(_Message, total=False):
    """A message as shown to people, without the parts that only its model can read."""

    approved: bool
    """Of a result: a person approved the call."""
    at: Time
    failed: bool
    """The tool failed, or did not run."""
    interrupted: bool
    """The answer was interrupted at its end."""
    parts: PartList
    source: Literal["outside", "gateway", "local"]
    """Of a result: `outside` if third parties may have written it, `gateway` if no tool ran and the gateway says why,
    `local` for built-in tools that read no third-party content.
    """
    suspects: list[MessageSuspectsItem]
    """Of a result: the call's arguments that the person has not named. By default they need approval."""
    tainted: bool
    """It is external content, or was written after external content was read."""
    thinking: str
    """The model's visible reasoning."""
    tool_call_id: str
    """For the role `tool`: the call that the message answers."""
    tool_calls: list[MessageToolCallsItem]
    tool_name: str
    turn_id: str


class MessageRequest(TypedDict, total=False):
    """Either `content` or a true `regenerate`. Duplicate keys and null are rejected: omit the field instead."""

    content: str
    """The user's message."""
    context: Literal["main", "group", "group sandboxed"]
    """The participants of the conversation, which determine the offered tools. Default: `main`, one trusted person. If
    the credentials set a stricter context, that one applies.
    """
    debug: bool
    """Send each model request as an event `debug_prompt`."""
    queue: Queue
    """Offers the tools of the device also while it sleeps. Their calls then wait for it; a later turn learns their
    outcomes. The header `X-Farhand-Queue` has the same effect.
    """
    regenerate: bool
    """Answer the last message again and replace its answer."""
    results: Literal["markdown", "plain"]
    """The format of tool results in the response. The model always reads the raw text. Default: `markdown`."""
    stream: bool
    """Whether to respond with events. Default: true if the header Accept has text/event-stream."""


class Model(TypedDict):
    """A model in OpenAI's list format."""

    created: Literal[0]
    """Not known."""
    id: str
    object: Literal["model"]
    owned_by: Literal["farhand"]


class ModelList(TypedDict):
    """The available models."""

    data: list[Model]
    object: Literal["list"]


ModelName = str
"""A tool or schema name that model vendors accept."""

NextCursor = str
"""Absent on the last page."""


class OIDC(TypedDict):
    """What the console needs to sign in with an identity provider (OpenID Connect)."""

    client_id: str
    provider: OIDCProvider
    scope: str
    token: Literal["access_token", "id_token"]
    """Which one the gateway accepts."""


class _OIDCProvider(TypedDict):
    """The members of OIDCProvider that are always there."""

    authorization_endpoint: str
    issuer: str
    token_endpoint: str


class OIDCProvider(_OIDCProvider, total=False):
    """What an identity provider says about itself, under the names of OpenID Connect Discovery."""

    authorization_response_iss_parameter_supported: bool
    id_token_signing_alg_values_supported: list[str]
    response_modes_supported: list[str]
    revocation_endpoint: str


class OpenAIErrorError(TypedDict):
    """Part of another type."""

    code: str
    """`invalid_api_key`, `invalid_request_error`, `model_not_found` and `rate_limit_exceeded` as in OpenAI's API,
    otherwise the gateway's own code.
    """
    message: str
    """For people: the problem and what to do."""
    param: Union[str, None]
    """The invalid field."""
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]


class OpenAIError(TypedDict):
    """An error in OpenAI's format."""

    error: OpenAIErrorError


class OpenAIToolFunction(TypedDict):
    """Part of another type."""

    description: str
    name: ModelName
    parameters: Parameters


class OpenAITool(TypedDict):
    """A tool in the format of OpenAI's chat completions. It has no other members, because servers, including /v1,
    reject tools with unknown members.
    """

    function: OpenAIToolFunction
    type: Literal["function"]


class _OpenAIToolList(TypedDict):
    """The members of OpenAIToolList that are always there."""

    tools: list[OpenAITool]


class OpenAIToolList(_OpenAIToolList, total=False):
    """Tools in the format of OpenAI's API."""

    names: ChangedNames
    next_cursor: NextCursor
    output_schemas: OutputSchemas


Ordered = Any
"""Ordered makes the calls that set it run one at a time on a device, in the order in which they were accepted. `true`:
the calls of the session with `true`. `tool`: the calls of the tool with `tool`. An asynchronous call is accepted when
the response arrives. The timeout includes the wait. Tools of the gateway ignore it.
"""

OutputSchema = dict[str, Any]
"""The JSON Schema (2020-12) of the tool's output; absent if unknown. Results are checked against it."""

OutputSchemas = dict[str, "OutputSchema"]
"""The output schemas of tools by their names in this list, because the format has no place for them."""


class OutputViolationsItem(TypedDict):
    """Part of another type."""

    message: str
    pointer: str
    """JSON Pointer into the output."""


OutputViolations = list["OutputViolationsItem"]
"""The result's violations of the tool's output schema, at most 20; absent if there are none. The result is passed on
unchanged.
"""


class PairAsked(TypedDict):
    """The answer to a PairRequest."""

    code: str
    """To display to a person."""
    device_id: str
    expires_in: int
    """Seconds until the request expires."""
    id: str
    interval: int
    """Seconds between requests to `/pair/status`."""
    secret: str
    """For `/pair/status`. The device must keep it secret."""


class PairRequest(TypedDict, total=False):
    """A device's request to be paired."""

    device_id: str
    """The credential is bound to it. Absent: the gateway generates one."""
    device_name: str
    """For people."""
    platform: str
    """For people."""
    public_key: str
    """An Ed25519 key, 32 bytes in base64url without padding. The credential then works only with signatures."""
    tools: list[str]
    """Names of tools the device wants to offer."""


class PairSecret(TypedDict):
    """A request for the status of a pairing request."""

    secret: str


class _PairStatus(TypedDict):
    """The members of PairStatus that are always there."""

    device_id: str
    status: Literal["pending", "rejected", "approved"]


class PairStatus(_PairStatus, total=False):
    """The status of a pairing request."""

    credential: str
    """With `approved`: the device's bearer token. It is returned only once."""
    name: str


class _Pairing(TypedDict):
    """The members of Pairing that are always there."""

    already_paired: bool
    """A device with this device_id is already paired."""
    created_at: Time
    device_id: str
    expires_at: Time
    id: str
    source: str
    """The address the request came from."""
    status: Literal["pending", "rejected", "approved"]
    tools: list[str]


class Pairing(_Pairing, total=False):
    """A pairing request, as shown to its approver."""

    client: str
    """Program and version, of an OpenClaw node."""
    device_name: str
    key_fingerprint: str
    """Of the public key, if the device has one."""
    looks_like: str
    """The device_id of another device, paired or waiting, that looks similar."""
    platform: str
    remarks: list[Literal["foreign", "unusual"]]
    """Warnings about the device_id: characters outside ASCII, or spaces and signs that are unusual in ids."""
    user_id: str


class PairingDecision(TypedDict, total=False):
    """An approver's decision on a pairing request."""

    code: str
    """As the device displays it; case and hyphens are ignored."""
    decision: Literal["approve", "reject"]
    name: str
    """For people. Absent: the device's own name."""
    replace: bool
    """Revokes the credential of an already paired device with the same device_id."""
    tools: list[str]
    """Names or globs of the tools that it may offer. Absent: the requested ones."""
    user: str
    """The device's user. Absent: the approver."""


class PairingList(TypedDict):
    """The requests that can be decided without their codes."""

    pairings: list[Pairing]


Parameters = dict[str, Any]
"""The JSON Schema (2020-12) of the arguments."""


class _Part(TypedDict):
    """The members of Part that are always there."""

    mime_type: str
    """As the device named it, in lower case and without parameters."""
    size: int
    """In bytes."""
    type: Literal["image", "audio", "file"]
    """Moving pictures are files."""


class Part(_Part, total=False):
    """An image, a sound or a file that a tool returned."""

    data: str
    """All parts of a result together have at most 1 MiB here."""
    name: str
    """Of the file, as the device named it. It is no path to write to."""
    uri: str
    """The URI of an MCP server's resource. It is not an address to fetch."""
    url: str
    """The temporary URL of the bytes, if they are not in `data`. With neither, they were not stored."""


PartList = list["Part"]
"""The tool's non-text output, without `data`. Parts have `url` if the gateway stored the file."""

Parts = list["Part"]
"""Images, sounds and files that the tool returned. They are never in `output`."""


class PodList(TypedDict):
    """The live pods."""

    pods: list[PodRow]


class _PodRow(TypedDict):
    """The members of PodRow that are always there."""

    pod: str
    self: bool
    """The pod that answers this request."""


class PodRow(_PodRow, total=False):
    """A live pod."""

    status: PodStatus
    """Absent: the pod did not answer within a second."""


class _PodStatusDurationsItem(TypedDict):
    """The members of PodStatusDurationsItem that are always there."""

    count: int


class PodStatusDurationsItem(_PodStatusDurationsItem, total=False):
    """Part of another type."""

    max_ms: float
    """Absent: no bound."""


class _PodStatus(TypedDict):
    """The members of PodStatus that are always there."""

    at: Time
    """Of the counters, by the pod's clock."""
    calls: int
    calls_failed: int
    draining: bool
    durations: list[PodStatusDurationsItem]
    """Of calls that a tool answered."""
    in_progress: int
    """Calls that wait for their answers."""
    memory_bytes: int
    refused: dict[str, int]
    """Rejected requests, by error code."""
    sessions: int
    """Whose sockets are on the pod."""
    started_at: Time
    streams: int
    """Open event streams."""
    turns: int
    """Of conversations, running."""
    version: str


class PodStatus(_PodStatus, total=False):
    """How a pod is. Counters count from its start; a difference of two answers is what happened in between."""

    redis: RedisStatus
    warnings: list[str]
    """Warnings for the operator, as of `/readyz`."""


class PolicyLists(TypedDict, total=False):
    """Part of another type."""

    call_allow: list[str]
    call_deny: list[str]
    register_allow: list[str]
    register_deny: list[str]


class _Policy(TypedDict):
    """The members of Policy that are always there."""

    defaults: list[PolicyRule]
    digest: str
    """Equal on pods with equal rules."""
    lists: PolicyLists


class Policy(_Policy, total=False):
    """The policy in force."""

    file: str
    """The text of the policy file. Absent: there is none."""
    refused: str
    """Why the current file is not in force. File is then the previous one."""


class _PolicyDecision(TypedDict):
    """The members of PolicyDecision that are always there."""

    allowed: bool
    approvals: list[PolicyDemand]
    """The call needs approval for each of these reasons."""
    context: str
    effects: list[str]
    forbidden: list[PolicyDemand]
    """The call is refused under these conditions."""
    limits: list[RateLimit]
    security_level: Literal["safe", "user_confirm", "admin_only"]
    tool: str


class PolicyDecision(_PolicyDecision, total=False):
    """The policy's decision about a question."""

    destinations: list[str]
    reason: str
    """Why not."""
    rule: str
    """That decided."""


class _PolicyDemand(TypedDict):
    """The members of PolicyDemand that are always there."""

    rule: str
    when: str


class PolicyDemand(_PolicyDemand, total=False):
    """A rule's reason to ask a person, or to refuse."""

    by: Literal["anyone", "other", "two"]
    grant_seconds: int
    only_urls: bool
    """Only URLs in the arguments count."""
    within_seconds: int


class _PolicyQuestion(TypedDict):
    """The members of PolicyQuestion that are always there."""

    tool: ToolName


class PolicyQuestion(_PolicyQuestion, total=False):
    """PolicyQuestion asks whether a caller may call a tool."""

    context: Literal["main", "group", "group sandboxed"]
    """Default: main."""
    effects: list[Literal["read_only", "destructive", "open_world"]]
    """Effects that the tool declares."""
    model: bool
    """A model calls."""
    over_mcp: bool
    """The call arrives over MCP."""
    register: bool
    """Whether a device may register the name instead."""
    roles: list[Literal["device", "caller", "approver", "admin"]]
    """Default: caller."""
    security_level: Literal["safe", "user_confirm", "admin_only"]
    """Of the tool."""
    source: Literal["remote", "builtin", "mcp"]
    """Where the tool comes from. Default: `builtin` for names of the gateway's own tools, else `remote`, a device."""
    tools: str
    """Globs of tools that the credential allows, separated by spaces. Absent: all."""
    user_id: str
    """Absent: a credential without a user."""


class _PolicyRule(TypedDict):
    """The members of PolicyRule that are always there."""

    id: str
    state: Literal["in_force", "replaced", "off"]
    """`replaced`: by a rule of the file. `off`: by FARHAND_AGENT_UNCONFIRMED."""
    text: str
    """In YAML."""


class PolicyRule(_PolicyRule, total=False):
    """A default rule."""

    about: str


class _ProblemCandidatesItem(TypedDict):
    """The members of ProblemCandidatesItem that are always there."""

    session_id: SessionID


class ProblemCandidatesItem(_ProblemCandidatesItem, total=False):
    """Part of another type."""

    device_id: str
    foreground: bool
    """The device says that its app is in the foreground."""
    name: str
    user_id: str


class ProblemErrorsItem(TypedDict):
    """Part of another type."""

    message: str
    pointer: str
    """JSON Pointer (RFC 6901) into `args`; empty for `args` itself."""


class _Problem(TypedDict):
    """The members of Problem that are always there."""

    code: ErrorCode
    detail: str
    """What to do about it, for people."""
    status: int
    title: str
    type: str


class Problem(_Problem, total=False):
    """An error as clients see it: RFC 9457 with Farhand's own members."""

    call_id: str
    """In every failure of a request to call a tool, with `dispatched` and `retryable`."""
    candidates: list[ProblemCandidatesItem]
    """With `ambiguous_target`: sessions that could have been meant, at most 20."""
    dispatched: Dispatched
    errors: list[ProblemErrorsItem]
    """With `invalid_arguments`: the broken rules of the parameters schema."""
    retryable: bool
    """The call was not dispatched and asking again may help."""
    trace_id: str
    """The trace of the request, if the gateway makes traces."""


class PromptMessage(TypedDict, total=False):
    """A message as sent to the model."""

    content: str
    role: str


class _ProtectedResource(TypedDict):
    """The members of ProtectedResource that are always there."""

    authorization_servers: list[str]
    bearer_methods_supported: list[str]
    resource: str
    """The URL to request a token for at the authorization server."""
    resource_name: str


class ProtectedResource(_ProtectedResource, total=False):
    """The metadata of the MCP endpoint, in the form of RFC 9728."""

    scopes_supported: list[str]


class Queue(TypedDict):
    """Queue lets a call to a sleeping device wait for it."""

    ttl_ms: int
    """The longest wait, 1 s to the gateway's maximum (`FARHAND_QUEUE_TTL`)."""


class QueuedCalls(TypedDict):
    """The calls that wait for a device, in order. The first one may be running."""

    calls: list[CallRecord]


_QuietHoursKeywords = TypedDict(
    "_QuietHoursKeywords",
    {
        "from": "str",
    },
)


class QuietHours(_QuietHoursKeywords):
    """A part of each day. `from` may be later than `to`: then they pass midnight."""

    to: str
    zone: str
    """Of the IANA database, such as Europe/Vienna; empty: UTC."""


class _RateLimit(TypedDict):
    """The members of RateLimit that are always there."""

    calls: int
    per: str
    """What calls are counted for: `identity`, `device` or `tenant`."""
    rule: str
    """The setting, or the rule of the policy."""
    window_seconds: int


class RateLimit(_RateLimit, total=False):
    """How often tools may be called. A call counts for all rates that apply to it."""

    tools: list[str]
    """Globs of tools; each tool is counted separately. A rule may cover fewer of them, such as one security level.
    Absent: the calls of all tools are counted together.
    """


class _Ready(TypedDict):
    """The members of Ready that are always there."""

    status: Literal["ready"]


class Ready(_Ready, total=False):
    """Ready says that new traffic can come to a pod."""

    warnings: list[Literal["policy_file_refused", "model_prices_refused", "certificate_refused"]]
    """Warnings for the operator. The pod still serves. policy_file_refused: the current policy file is invalid, and the
    previous one is in force; model_prices_refused says the same of the file of model prices. certificate_refused: the
    current files of the certificate cannot be used, and an earlier certificate is in use.
    """


class Receipt(TypedDict):
    """Receipt says what of a person was erased. It does not name the person."""

    at: Time
    erased: dict[str, int]
    """Numbers by kind."""
    id: str
    kept: list[Kept]
    """What still names the person."""
    subject: str
    """The first 16 hexadecimal digits of the SHA-256 of `id`, the tenant and the user, separated by line feeds."""


class _RedisStatusDurationsItem(TypedDict):
    """The members of RedisStatusDurationsItem that are always there."""

    count: int


class RedisStatusDurationsItem(_RedisStatusDurationsItem, total=False):
    """Part of another type."""

    max_ms: float
    """Absent: no bound."""


class RedisStatus(TypedDict):
    """A pod's connection to Redis. Absent: the pod's store is its memory."""

    connections: int
    durations: list[RedisStatusDurationsItem]
    """Of round trips."""
    failed: int
    """Round trips."""
    ready: bool
    """It answers, and messages of other pods arrive."""


class _Requester(TypedDict):
    """The members of Requester that are always there."""

    model: bool
    """A language model calls, in the user's conversation."""


class Requester(_Requester, total=False):
    """The caller that needs approval."""

    credential: str
    """The caller's credential; not secret."""
    name: str
    """The display name of the credential."""
    user_id: str


class Revocation(TypedDict, total=False):
    """Exactly one member."""

    credential: str
    """As in the audit log and in lists, key:… or device:…, or its id."""
    device_id: str
    jti: str
    """The id of a JSON Web Token."""
    user_id: str


class Revoked(TypedDict):
    """The answer to a revocation."""

    credentials: int
    """Number of removed credentials."""


class RotateRequest(TypedDict, total=False):
    """A request for a new secret of a credential."""

    overlap: int
    """Seconds for which the former secret still works; 0: not at all. Default: a day; for a device that rotates its own
    credential, a week. An OpenClaw node gets its new secret when it next connects, and the former one ends when the
    node has used that, or a day later. With 0, the node's connection ends now, and the former secret in 10 minutes.
    """


class _RotatedDevice(TypedDict):
    """The members of RotatedDevice that are always there."""

    device_id: str
    id: str


class RotatedDevice(_RotatedDevice, total=False):
    """The new credential of a paired device."""

    credential: str
    """The bearer token, returned only once. Absent with `on_next_connection`."""
    former_secret: FormerSecret
    on_next_connection: bool
    """The device is an OpenClaw node: it gets the new credential itself, when it next connects."""


RoundTrip = int
"""From the last ping to its pong, in milliseconds, rounded up. Absent: not known yet."""


class _RunningSession(TypedDict):
    """The members of RunningSession that are always there."""

    created_at: Time
    last_activity: Time
    message_count: int
    """Of the conversation."""
    session_id: SessionID
    turn_started_at: Time


class RunningSession(_RunningSession, total=False):
    """A session with a running turn."""

    name: str


class _RunningSessionList(TypedDict):
    """The members of RunningSessionList that are always there."""

    sessions: list[RunningSession]


class RunningSessionList(_RunningSessionList, total=False):
    """A page of the sessions with a running turn."""

    next_cursor: NextCursor


class _Session(TypedDict):
    """The members of Session that are always there."""

    connected: bool
    """False: only the conversation exists. Then `connected_at`, `pod` and `generation` are absent, and there are no
    tools.
    """
    created_at: Time
    last_activity: Time
    message_count: int
    """Of the conversation."""
    online: bool
    """The same as `connected`; the name in lists of paired devices."""
    session_id: SessionID
    tools: list[Tool]
    """In order of name."""


class Session(_Session, total=False):
    """A session with the definitions of its tools."""

    capabilities: list[str]
    connected_at: Time
    device_id: str
    device_name: str
    generation: int
    """Grows with each connection of the session. Lists are in this order."""
    labels: Labels
    last_pong: LastPong
    name: str
    platform: str
    pod: str
    """The pod that holds the device's connection."""
    round_trip_ms: RoundTrip
    user_id: str


class SessionAborted(TypedDict):
    """The result of an abort."""

    status: Literal["aborted", "no_active_response"]


SessionID = str
"""SessionID names a session."""


class _SessionList(TypedDict):
    """The members of SessionList that are always there."""

    sessions: list[SessionRow]


class SessionList(_SessionList, total=False):
    """A page of the list of sessions."""

    next_cursor: NextCursor


class SessionName(TypedDict):
    """A request to rename a session or a paired device."""

    name: str


class SessionRenamed(TypedDict):
    """A renamed session."""

    name: str
    session_id: SessionID


class _SessionRow(TypedDict):
    """The members of SessionRow that are always there."""

    connected: bool
    """False: only the conversation exists. Then `connected_at`, `pod` and `generation` are absent, and there are no
    tools.
    """
    created_at: Time
    last_activity: Time
    message_count: int
    """Of the conversation."""
    online: bool
    """The same as `connected`; the name in lists of paired devices."""
    session_id: SessionID
    tools: list[ToolName]
    """In order of name."""


class SessionRow(_SessionRow, total=False):
    """A session in a list. The session is connected, or has a conversation."""

    capabilities: list[str]
    connected_at: Time
    device_id: str
    device_name: str
    generation: int
    """Grows with each connection of the session. Lists are in this order."""
    labels: Labels
    last_pong: LastPong
    last_seen: str
    """Of a sleeping device."""
    name: str
    platform: str
    pod: str
    """The pod that holds the device's connection."""
    presence: Literal["connected", "sleeping"]
    """Absent unless the request has the parameter `presence`."""
    round_trip_ms: RoundTrip
    tools_disabled: list[DisabledTool]
    """The tools that the caller may not call now. Absent: the caller may call all of them."""
    user_id: str


class _SessionState(TypedDict):
    """The members of SessionState that are always there."""

    session_id: SessionID
    state: Literal["idle", "running"]


class SessionState(_SessionState, total=False):
    """Whether a turn of a session is running, and since when."""

    turn_started_at: Time


class SetupCode(TypedDict):
    """SetupCode pairs one OpenClaw node without a question to an approver. It is returned only once."""

    expires_at: Time
    pair_url: str
    """The same as a link, `oc-pair://` and the code."""
    setup_code: str
    """To type in, or to scan as a QR code."""
    url: str
    """Where the node connects."""


class SetupRequest(TypedDict, total=False):
    """A request for a setup code."""

    name: str
    """For people. Absent: the node's own name."""
    tools: list[str]
    """Names or globs of the tools that it may offer. Absent: those that it declares when it pairs."""
    url: str
    """Where the node connects: ws:// or wss://, with the path. Absent: the gateway's public URL or, if it has none, the
    address of this request.
    """
    user: str
    """The node's user. Absent: the approver."""


class SignIn(TypedDict, total=False):
    """How people sign in at the console."""

    oidc: OIDC
    """absent: with a key or token only."""


class Target(TypedDict, total=False):
    """Target selects the session. All members must match."""

    device_id: str
    labels: Labels
    session_id: str
    user_id: str
    """The user as named by credentials. The gateway's own credentials name no user, so nothing matches."""


class TenantToday(TypedDict, total=False):
    """Since midnight UTC, a few seconds late."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class _Tenant(TypedDict):
    """The members of Tenant that are always there."""

    budget: DayBudget
    devices: int
    """Connected, approximately."""
    since: Time
    """When it was first listed."""
    tenant: str
    today: TenantToday
    """Since midnight UTC, a few seconds late."""
    used: bool
    """Whether a credential of it was ever used. If not, an operator may create its first key."""


class Tenant(_Tenant, total=False):
    """A tenant in numbers, for fleet operators. It has nothing of the tenant's content."""

    budget_at: Time
    budget_by: str
    """The credential that set the budget. Absent: it was never set."""


class TenantDaySpent(TypedDict, total=False):
    """Part of another type."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class TenantDay(TypedDict):
    """What a tenant spent on a day."""

    day: str
    spent: TenantDaySpent


class TenantDetailsToday(TypedDict, total=False):
    """Since midnight UTC, a few seconds late."""

    bytes: int
    """Of arguments and outputs."""
    calls: int
    """Admitted."""
    cost_micros: int
    """Money for models, in millionths of the unit of currency."""
    tokens: int
    """Of models, input and output."""


class _TenantDetails(TypedDict):
    """The members of TenantDetails that are always there."""

    budget: DayBudget
    days: list[TenantDay]
    """The latest first; without days on which nothing was spent."""
    devices: int
    """Connected, approximately."""
    since: Time
    """When it was first listed."""
    tenant: str
    today: TenantDetailsToday
    """Since midnight UTC, a few seconds late."""
    used: bool
    """Whether a credential of it was ever used. If not, an operator may create its first key."""


class TenantDetails(_TenantDetails, total=False):
    """A tenant with what it spent on the last days."""

    budget_at: Time
    budget_by: str
    """The credential that set the budget. Absent: it was never set."""


class _TenantList(TypedDict):
    """The members of TenantList that are always there."""

    tenants: list[Tenant]


class TenantList(_TenantList, total=False):
    """A page of the tenants, by name."""

    next_cursor: NextCursor


class TicketRequest(TypedDict, total=False):
    """A request for a ticket of an event stream."""

    path: str
    """The stream: `/api/events`, or `/api/calls/{id}/events`."""


Time = str
"""In UTC, with milliseconds: `2026-01-31T12:00:00.000Z`."""


class TokenUsage(TypedDict):
    """The number of tokens that a turn used."""

    input_tokens: int
    output_tokens: int


class _Tool(TypedDict):
    """The members of Tool that are always there."""

    description: str
    enabled: bool
    """Whether the policy lets the caller call it."""
    name: ToolName
    parameters: Parameters
    schema_hash: str
    """Equal for equal definitions, including descriptions and annotations."""


class Tool(_Tool, total=False):
    """The definition of a tool, and whether the caller may call it."""

    annotations: Annotations
    approval: Literal["required"]
    """Each call of the caller needs a person's approval."""
    effects: ToolEffects
    output_schema: OutputSchema
    reason: str
    """Why the caller may not call it; absent if it may."""
    security_level: Literal["safe", "user_confirm", "admin_only"]
    tags: ToolTags
    timeout_ms: int
    """The timeout of a call that sets none."""


class ToolDecision(TypedDict, total=False):
    """A decision on tools of a paired device."""

    approve: list[ApprovedTool]
    """Waiting tools, each with the hash of the reviewed definition."""
    reject: list[str]
    """Names of tools the device must not offer."""


_ToolEffectsKeywords = TypedDict(
    "_ToolEffectsKeywords",
    {
        "class": 'Literal["read", "write", "external", "people"]',
    },
    total=False,
)


class ToolEffects(_ToolEffectsKeywords, total=False):
    """What a tool declares about its calls. If it declares no class, its annotations imply one. It comes from the
    device and is not verified.
    """

    cost: Literal["free", "metered", "high"]
    needs_foreground: bool
    """The app must be in the foreground. A call for a device in the background is refused or waits in the queue."""
    permission: str
    """The platform's permission that the tool uses, such as camera."""
    typical_ms: int
    """How long a call usually takes. It sets no timeout."""


class _ToolGroupList(TypedDict):
    """The members of ToolGroupList that are always there."""

    tools: list[GroupRow]


class ToolGroupList(_ToolGroupList, total=False):
    """A row for each definition."""

    next_cursor: NextCursor


class _ToolList(TypedDict):
    """The members of ToolList that are always there."""

    tools: list[ToolRow]


class ToolList(_ToolList, total=False):
    """A row for each tool of each session."""

    next_cursor: NextCursor


ToolMeta = dict[str, Any]
"""The effects and tags of an MCP tool, as `farhand/effects` and `farhand/tags`."""

ToolName = str
"""Letters and decimal digits of any script, and `_`; after the first character marks, `.` and `-` also."""


class _ToolRow(TypedDict):
    """The members of ToolRow that are always there."""

    description: str
    enabled: bool
    """Whether the policy lets the caller call it."""
    name: ToolName
    parameters: Parameters
    schema_hash: str
    """Equal for equal definitions, including descriptions and annotations."""
    source: str
    """For remote tools the session's id, for built-in ones `builtin`."""
    source_type: Literal["builtin", "mcp", "remote"]


class ToolRow(_ToolRow, total=False):
    """A tool of a session, or a built-in tool. Built-in tools come first, and have no session and no pod."""

    annotations: Annotations
    approval: Literal["required"]
    """Each call of the caller needs a person's approval."""
    device_id: str
    device_name: str
    effects: ToolEffects
    labels: Labels
    last_seen: str
    """Of a sleeping device."""
    output_schema: OutputSchema
    pod: str
    """The pod that holds the device's connection."""
    presence: Literal["connected", "sleeping"]
    """Absent unless the request has the parameter."""
    reason: str
    """Why the caller may not call it; absent if it may."""
    security_level: Literal["safe", "user_confirm", "admin_only"]
    session_id: SessionID
    tags: ToolTags
    timeout_ms: int
    """The timeout of a call that sets none."""
    user_id: str


ToolTags = list[str]
"""Short names for filters, in order."""


class Transcript(TypedDict):
    """A conversation, or the last part of a long one."""

    busy: bool
    """A turn is running."""
    message_count: int
    """Of the whole conversation."""
    messages: list[Message]
    session_id: SessionID
    title: str
    """Empty while it has none."""


class _TurnAnswer(TypedDict):
    """The members of TurnAnswer that are always there."""

    duration_ms: int
    full_response: str
    """The model's whole text of this turn."""
    message_count: int
    """Of the whole conversation."""
    session_id: SessionID
    tool_calls: list[TurnCall]
    """In the order of the model's requests."""
    turn_id: str
    usage: TokenUsage


class TurnAnswer(_TurnAnswer, total=False):
    """The response to a message after the turn has ended."""

    stop_reason: TurnStop
    title: str


class _TurnApproval(TypedDict):
    """The members of TurnApproval that are always there."""

    args_digest: str
    args_text: str
    """The complete arguments for people. Invisible and ambiguous characters are escaped."""
    call_id: str
    created_at: Time
    expires_at: Time
    """Without a decision until then, the call is denied."""
    id: ApprovalID
    may_decide: bool
    """Whether the reader may allow the call now."""
    mode: Literal["sync", "async"]
    """`async`: no caller waits, and the call starts when it is allowed."""
    reason: str
    """Why the call needs approval."""
    remarks: list[Literal["long", "multiline", "hidden", "foreign"]]
    """Warnings about the arguments: they are long, have several lines, invisible or reordering characters, or letters
    outside ASCII.
    """
    requester: Requester
    rule: str
    """The id of the policy rule that requires it."""
    schema_hash: str
    """The digest of the tool's definition. The approval is valid only for this definition."""
    state: ApprovalState
    tool: str
    type: Literal["approval_request", "approval_decided"]


class TurnApproval(_TurnApproval, total=False):
    """About an approval. `approval_request`: the turn waits for a person. `approval_decided`: the outcome."""

    allowed_by: str
    """With `by: two`: the first person who allowed the call."""
    approvers: list[str]
    """Who may decide, if known: users, names of keys, other holders of the role."""
    args: dict[str, Any]
    """As they will reach the tool."""
    arguments: list[ArgumentSource]
    """Where argument values come from, if known."""
    by: Literal["anyone", "other", "two"]
    """Who may allow the call by the policy. Absent: every approver except the calling credential."""
    comment: str
    """Of the person who decided."""
    decided_at: Time
    decided_by: str
    """A user, a credential or a device; two of them with `by: two`."""
    device_id: str
    device_name: str
    devices: list[ApprovedDevice]
    """The devices of a group call, instead of the three members above. The approval covers one call of each."""
    effects: ToolEffects
    """What the tool declares about its calls."""
    looks_like: str
    """The device_id of a paired device that looks similar."""
    scope: Literal["once", "always_tool", "always_args"]
    session_id: SessionID
    """The target session. Absent for built-in tools."""
    turn_id: str
    user_id: str
    """The device's user, or the requester. Absent: no user."""


class _TurnCall(TypedDict):
    """The members of TurnCall that are always there."""

    args: Any
    """An object, or the model's text if that was not JSON."""
    id: str
    """As in /api/calls."""
    name: str
    output: str
    status: TurnCallStatus


class TurnCall(_TurnCall, total=False):
    """A call of a tool in a turn."""

    parts: PartList


TurnCallStatus = Literal["pending", "executing", "completed", "failed"]
"""The progress of a call in a turn."""


class _TurnDone(TypedDict):
    """The members of TurnDone that are always there."""

    duration_ms: int
    full_response: str
    message_count: int
    turn_id: str
    type: Literal["done"]
    usage: TokenUsage


class TurnDone(_TurnDone, total=False):
    """The end of a turn."""

    stop_reason: TurnStop


TurnEvent = Union[
    "TurnText",
    "TurnToolCall",
    "TurnToolResult",
    "TurnPrompt",
    "TurnTitle",
    "TurnMark",
    "TurnApproval",
    "TurnDone",
    "TurnFailed",
]
"""An event of a turn, by its `type`. The last event is `done`, `aborted` or `error`."""


class _TurnFailed(TypedDict):
    """The members of TurnFailed that are always there."""

    code: str
    """As in the chat protocol: `PROVIDER_ERROR`, …"""
    message: str
    type: Literal["error"]


class TurnFailed(_TurnFailed, total=False):
    """The turn failed."""

    retry_after_ms: int
    """How long to wait before a retry."""


class TurnMark(TypedDict):
    """TurnMark marks a point of a turn. `chunk_reset`: the whole text follows and replaces the streamed text.
    `aborted`: a request ended the turn; its messages so far are stored.
    """

    type: Literal["chunk_reset", "aborted"]


class TurnPrompt(TypedDict):
    """TurnPrompt is, with `debug`, the next model request."""

    estimated_tokens: int
    messages: list[PromptMessage]
    type: Literal["debug_prompt"]


TurnStop = Literal["stop", "tool_calls", "length", "content_filter"]
"""Why the model stopped: it was done, reached its token limit, called tools, or refused."""


class TurnText(TypedDict):
    """A piece of the answer, or of the model's reasoning."""

    content: str
    type: Literal["chunk", "thinking"]


class TurnTitle(TypedDict):
    """The conversation's new title."""

    title: str
    type: Literal["title_updated"]


class TurnToolCall(TypedDict):
    """A tool is being called."""

    args: Any
    id: str
    name: str
    status: TurnCallStatus
    type: Literal["tool_call"]


class _TurnToolResult(TypedDict):
    """The members of TurnToolResult that are always there."""

    id: str
    name: str
    output: str
    status: TurnCallStatus
    type: Literal["tool_result"]


class TurnToolResult(_TurnToolResult, total=False):
    """A call has ended."""

    parts: PartList


class Upload(TypedDict):
    """A slot. PUT the bytes to `url`, with Content-Length and Content-Type as asked for, and name the upload in
    arguments as `{"$upload": "upload_id"}`. The device gets `{"url", "sha256", "size", "mime_type"}` in its place.
    """

    expires_at: Time
    """For the upload."""
    upload_id: str
    url: str
    """Relative to the gateway."""


class _UploadRequest(TypedDict):
    """The members of UploadRequest that are always there."""

    sha256: str
    size: int
    """In bytes."""


class UploadRequest(_UploadRequest, total=False):
    """UploadRequest asks for a slot for a file that is an argument of a call."""

    mime_type: str
    """Default: `application/octet-stream`."""


_UsageListKeywords = TypedDict(
    "_UsageListKeywords",
    {
        "from": "str",
    },
)


class _UsageList(_UsageListKeywords):
    """The members of UsageList that are always there."""

    to: str
    usage: list[UsageRow]


class UsageList(_UsageList, total=False):
    """A page of usage, and its days."""

    next_cursor: NextCursor


class _UsageRow(TypedDict):
    """The members of UsageRow that are always there."""

    bytes_in: int
    """Of arguments."""
    bytes_out: int
    """Of outputs."""
    calls: int
    failures: int
    """Calls that did not run, and calls whose tool failed."""
    input_tokens: int
    """Read by models."""
    ms: int
    """How long the calls took together."""
    output_tokens: int


class UsageRow(_UsageRow, total=False):
    """A row of usage. Fields that rows are not grouped by are absent."""

    day: str
    key: str
    """For identities without a user: the credential's name. Absent if it has none."""
    tool: str
    user: str
    """Empty: identities without a user. Absent if rows are not grouped by user."""


class _WaitingDefinition(TypedDict):
    """The members of WaitingDefinition that are always there."""

    description: str
    name: str
    parameters: Parameters


class WaitingDefinition(_WaitingDefinition, total=False):
    """A definition of a device's tool."""

    annotations: Annotations
    effects: ToolEffects
    output_schema: OutputSchema
    security_level: Literal["safe", "user_confirm", "admin_only"]
    tags: ToolTags
    timeout_ms: int


class _WaitingTool(TypedDict):
    """The members of WaitingTool that are always there."""

    description: str
    hash: str
    name: str
    parameters: Parameters


class WaitingTool(_WaitingTool, total=False):
    """A tool that waits for approval."""

    annotations: Annotations
    approved_hash: str
    """A tool of this name is approved with another definition."""
    before: WaitingDefinition
    changed: list[str]
    """The changed fields."""
    effects: ToolEffects
    output_schema: OutputSchema
    security_level: Literal["safe", "user_confirm", "admin_only"]
    tags: ToolTags
    timeout_ms: int


class _Wake(TypedDict):
    """The members of Wake that are always there."""

    kind: Literal["webhook", "webpush", "unifiedpush", "fcm", "apns"]
    """The service that the push goes to. The gateway must have credentials for it."""


class Wake(_Wake, total=False):
    """Wake says how a device is woken while it sleeps. Which fields are required depends on `kind`."""

    endpoint: str
    """Webpush and unifiedpush: of the subscription."""
    keys: WakeKeys
    """Webpush and unifiedpush: of the subscription."""
    min_interval_ms: int
    """The minimum time between two pushes."""
    quiet: QuietHours
    """No pushes in this part of each day."""
    token: str
    """Fcm and apns: of the device."""
    topic: str
    """apns: the bundle id of the app."""
    url: str
    """webhook: gets a signed request."""


class WakeKeys(TypedDict):
    """The keys of a push subscription, in base64url."""

    auth: str
    p256dh: str
