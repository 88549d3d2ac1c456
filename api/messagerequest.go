package api

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/registry"
)

// messageRequest is the body of a message to a session.
type messageRequest struct {
	content    string
	regenerate bool
	debug      bool
	stream     *bool // nil when absent
	format     chat.Format
	kind       policy.Context // who takes part, as the caller says
}

// parseMessage reads the body of a message.
func parseMessage(body []byte) (messageRequest, error) {
	var r messageRequest
	if strings.TrimSpace(string(body)) == "" {
		return r, registry.Errorf(registry.CodeInvalidRequest, "The body is empty. Send {\"content\":\"…\"}.")
	}
	fields, err := readBodyObject(body, "content", "regenerate", "debug", "stream", "results", "context")
	if err != nil {
		return r, err
	}
	for _, name := range []string{"content", "results", "context", "regenerate", "debug", "stream"} {
		if text, ok := fields.get(name); ok {
			if err := r.readField(name, text); err != nil {
				return r, err
			}
		}
	}
	switch _, said := fields.get("content"); {
	case said && r.regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest,
			"The fields \"content\" and \"regenerate\" exclude one another: the last message is answered again.")
	case !said && !r.regenerate:
		return r, registry.Errorf(registry.CodeInvalidRequest, "The field \"content\" is missing: it is what is said.")
	}
	return r, nil
}

// readField reads one field of the body.
func (r *messageRequest) readField(name string, text json.RawMessage) (err error) {
	switch name {
	case "content":
		r.content, err = readString(text, name)
	case "results":
		r.format, err = readEither(text, name, chat.FormatMarkdown, chat.FormatPlain)
	case "context":
		r.kind, err = readContext(text, name)
	case "regenerate":
		r.regenerate, err = readBool(text, name)
	case "debug":
		r.debug, err = readBool(text, name)
	case "stream":
		var on bool
		on, err = readBool(text, name)
		r.stream = &on
	}
	return err
}

// readContext reads who takes part in a conversation. It can only be told to be stricter than the credentials say.
func readContext(text json.RawMessage, at string) (policy.Context, error) {
	s, err := readString(text, at)
	if err == nil && !slices.Contains(policy.Contexts(), policy.Context(s)) {
		err = wrongType(at, fmt.Sprintf("one of %q", policy.Contexts()))
	}
	return policy.Context(s), err
}

func readBool(text json.RawMessage, at string) (bool, error) {
	switch string(text) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, wrongType(at, "true or false")
	}
}

// readMessage reads a message, and whether its answer is to be streamed: as the body says, otherwise if the caller
// accepts events.
func (h *handler) readMessage(c *gin.Context) (r messageRequest, streamed bool, err error) {
	body, err := h.readBody(c)
	if err != nil {
		return r, false, err
	}
	if r, err = parse(c, h.Invoker, body, parseMessage); err != nil {
		return r, false, err
	}
	if r.stream != nil {
		return r, *r.stream, nil
	}
	return r, acceptsEvents(c.Request.Header), nil
}

func acceptsEvents(header http.Header) bool {
	for _, value := range header.Values("Accept") {
		for item := range strings.SplitSeq(value, ",") {
			if media, _, err := mime.ParseMediaType(item); err == nil && media == "text/event-stream" {
				return true
			}
		}
	}
	return false
}
