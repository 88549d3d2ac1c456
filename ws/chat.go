package ws

import "strings"

// errNoAgent answers what only a conversation could.
var errNoAgent = &frameError{
	code: codeAgentInitFailed,
	message: "This gateway runs no agent. Configure a model provider and connect again; " +
		"tools can be registered and called without one.",
}

// message refuses a turn: there is no agent yet that could take it.
func (c *conn) message(f *messageFrame) error {
	if strings.TrimSpace(f.Content) == "" {
		return &frameError{codeEmptyContent, "content: must not be empty."}
	}
	return errNoAgent
}
