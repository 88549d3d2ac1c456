package openai

const (
	// Prefix begins every path whose clients expect OpenAI's answers.
	Prefix = "/v1/"

	// HeaderSession names the session whose tools join in a completion.
	HeaderSession = "X-Farhand-Session"

	// HeaderRetry tells clients of OpenAI's API whether to ask again by themselves, whatever they make of the status.
	HeaderRetry = "X-Should-Retry"
)
