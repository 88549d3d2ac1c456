package api

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

// The parts of the document are in openapi/. schemas.json is generated from package wire (`make docs`), the others are
// written by hand. The version, and the statuses of error codes, are filled in here.
//
//go:embed openapi/*.json
var openAPIFiles embed.FS

type object = map[string]any

// openAPI builds the OpenAPI 3.1 document.
func openAPI(version string) ([]byte, error) {
	parts := make(map[string]object)
	for _, name := range []string{"info", "paths", "parameters", "schemas"} {
		text, err := openAPIFiles.ReadFile("openapi/" + name + ".json")
		if err != nil {
			return nil, fmt.Errorf("openapi: %w", err)
		}
		var part object
		if err := json.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("openapi/%s.json: %w", name, err)
		}
		parts[name] = part
	}
	parts["info"]["version"] = version
	return json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info":    parts["info"],
		"servers": []object{{"url": "/"}},
		"paths":   parts["paths"],
		"components": object{
			"schemas":    parts["schemas"],
			"parameters": parts["parameters"],
			"responses":  errorResponses(),
			"headers":    responseHeaders(),
			"securitySchemes": object{"bearer": object{
				"type": "http", "scheme": "bearer",
				"description": "FARHAND_TOKEN. " +
					"A gateway without one answers only to its own machine, whatever the token.",
			}},
		},
		"security": []object{{"bearer": []string{}}},
	}, "", " ")
}

// problemResponses returns one response for each status of an error. Its name is the number.
func problemResponses() object {
	codes := make(map[int][]string)
	for _, code := range registry.Codes() {
		status := auth.ProblemOf(&registry.Error{Code: code}).Status
		codes[status] = append(codes[status], "`"+string(code)+"`")
	}
	responses := make(object)
	for status, names := range codes {
		slices.Sort(names)
		headers := object{
			headerPod: refHeader("Pod"), headerCallID: refHeader("CallId"), headerReplayed: refHeader("Replayed"),
		}
		switch status {
		case http.StatusUnauthorized:
			headers["WWW-Authenticate"] = refHeader("Authenticate")
		case http.StatusMethodNotAllowed:
			headers["Allow"] = refHeader("Allow")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusConflict:
			headers["Retry-After"] = refHeader("RetryAfter")
		}
		responses[strconv.Itoa(status)] = object{
			"description": http.StatusText(status) + ": " + strings.Join(names, ", ") + ".",
			"headers":     headers,
			"content": object{
				"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}},
			},
		}
	}
	return responses
}

// errorResponses returns the responses of problemResponses, and the common error responses of /v1 and of /mcp.
func errorResponses() object {
	responses := problemResponses()
	responses["OpenAIError"] = object{
		"description": "An error in OpenAI's format.",
		"headers": object{
			headerPod: refHeader("Pod"), "WWW-Authenticate": refHeader("Authenticate"), "Allow": refHeader("Allow"),
			"Retry-After": refHeader("RetryAfter"), openai.HeaderRetry: refHeader("ShouldRetry"),
		},
		"content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/OpenAIError"}}},
	}
	responses["MCPError"] = object{
		"description": "An error in JSON-RPC's format. If the message was not read, the status is as elsewhere.",
		"headers": object{
			headerPod: refHeader("Pod"), headerCallID: refHeader("CallId"),
			"WWW-Authenticate": refHeader("Authenticate"), "Retry-After": refHeader("RetryAfter"),
		},
		"content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/MCPMessage"}}},
	}
	return responses
}

func responseHeaders() object {
	text := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	return object{
		"Pod":      text("The pod that answered."),
		"CallId":   text("The id of the call, also of one that failed."),
		"Location": text("Where the call's record is."),
		"Replayed": text("`true` when the answer, or the end, is that of an earlier request with the same " +
			"idempotency key."),
		"ETag": text("Changes whenever the content does. " +
			"Send it as If-None-Match to get 304 while it has not."),
		"Authenticate": text("Always Bearer."),
		"Allow":        text("The methods this path takes."),
		"ShouldRetry":  text("`false`: do not ask again by yourself, as tools have run or nothing would come of it."),
		"RetryAfter": object{
			"description": "Seconds to wait, at least 1.", "schema": object{"type": "integer", "minimum": 1},
		},
	}
}

func refHeader(name string) object { return object{"$ref": "#/components/headers/" + name} }

func (h *handler) openAPI(c *gin.Context, _ params) error {
	document, err := h.document()
	if err != nil {
		return err
	}
	return h.writeCacheable(c, document)
}
