package trace

// Key is the name of an attribute. docs/traces.md has each.
type Key string

// Attributes by OpenTelemetry's semantic conventions: HTTP, errors, GenAI, MCP.
const (
	HTTPMethod  Key = "http.request.method"
	HTTPRoute   Key = "http.route"
	HTTPStatus  Key = "http.response.status_code"
	ErrorType   Key = "error.type"
	Operation   Key = "gen_ai.operation.name"
	Provider    Key = "gen_ai.provider.name"
	Model       Key = "gen_ai.request.model"
	InputCount  Key = "gen_ai.usage.input_tokens"
	OutputCount Key = "gen_ai.usage.output_tokens"
	Finish      Key = "gen_ai.response.finish_reasons"
	Agent       Key = "gen_ai.agent.name"
	Session     Key = "gen_ai.conversation.id"
	Tool        Key = "gen_ai.tool.name"
	ToolCall    Key = "gen_ai.tool.call.id"
	ToolType    Key = "gen_ai.tool.type"
	MCPMethod   Key = "mcp.method.name"
)

// Attributes of Farhand's own.
const (
	Pod      Key = "farhand.pod"
	Tenant   Key = "farhand.tenant"
	Device   Key = "farhand.session_id" // of the device that a call goes to
	Endpoint Key = "farhand.endpoint"
	Route    Key = "farhand.route"
	Turn     Key = "farhand.turn_id"
	Rule     Key = "farhand.policy.rule"
	Approval Key = "farhand.approval_id"
	Upstream Key = "farhand.mcp_server"
	Engine   Key = "farhand.sandbox"
	Action   Key = "farhand.browser.action"
)

// ToolFailed is the error type of a span whose tool ran and reported a failure.
const ToolFailed = "tool_failed"
