package api

import (
	"embed"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// indexAge bounds how long an upgrade of the gateway goes unnoticed.
const indexAge = "public, max-age=300"

// index leads a browser to the console, and tells a program where to read more.
func (h *handler) index(c *gin.Context, _ *params) error {
	header := c.Writer.Header()
	header.Set("Cache-Control", indexAge)
	header.Set("Vary", "Accept")
	if h.Console != "" && prefersHTML(c.Request.Header) {
		header.Set("Location", h.Console)
		c.Status(http.StatusFound)
		c.Writer.WriteHeaderNow()
		return nil
	}
	return h.writeJSON(c, http.StatusOK, wire.Index{
		Name: "farhand", Version: h.Version, OpenAPI: "/openapi.json", MCP: pathMCP, Health: pathHealth,
		Ready: pathReady, Documentation: "https://github.com/farhand/farhand/tree/main/docs", Console: h.Console,
	})
}

// prefersHTML reports whether a client prefers HTML to JSON (RFC 9110, 12.5.1), as browsers do.
func prefersHTML(header http.Header) bool {
	html, json := quality{}, quality{}
	for item := range strings.SplitSeq(strings.Join(header.Values("Accept"), ","), ",") {
		media, params, err := mime.ParseMediaType(item)
		if err != nil {
			continue
		}
		q, err := strconv.ParseFloat(params["q"], 64)
		if err != nil || !(q >= 0 && q <= 1) {
			q = 1
		}
		html.accept("text/html", media, q)
		json.accept("application/json", media, q)
	}
	return html.q > json.q
}

// quality is how much a client wants a media type, by the most specific range that includes it.
type quality struct {
	q     float64
	exact int // how specific: 0 for none, 3 for the type itself
}

func (v *quality) accept(media, accepted string, q float64) {
	kind, _, _ := strings.Cut(media, "/")
	exact := map[string]int{"*/*": 1, kind + "/*": 2, media: 3}[accepted]
	if exact > v.exact {
		v.q, v.exact = q, exact
	}
}

// The parts of the document are in openapi/. schemas.json is generated from package wire (`make docs`), the others are
// written by hand. The version, and the responses of error codes, are added here.
//
//go:embed openapi/*.json
var openAPIFiles embed.FS

type object = map[string]any

// openAPI builds the OpenAPI 3.1 document.
func openAPI(version string) ([]byte, error) {
	parts := make(map[string]object)
	for _, name := range []string{"info", "paths", "parameters", "components", "schemas"} {
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
	components := parts["components"]
	components["schemas"], components["parameters"] = parts["schemas"], parts["parameters"]
	addProblems(components["responses"].(object))
	return json.MarshalIndent(object{
		"openapi": "3.1.0", "info": parts["info"], "servers": []object{{"url": "/"}}, "paths": parts["paths"],
		"components": components, "security": []object{{"bearer": []string{}}},
	}, "", " ")
}

// addProblems adds one response for each status of an error. Its name is the number.
func addProblems(responses object) {
	codes := make(map[int][]string)
	for _, code := range registry.Codes() {
		status := auth.ProblemOf(&registry.Error{Code: code}).Status
		codes[status] = append(codes[status], "`"+string(code)+"`")
	}
	header := func(name string) object { return object{"$ref": "#/components/headers/" + name} }
	for status, names := range codes {
		slices.Sort(names)
		headers := object{
			headerPod: header("Pod"), headerCallID: header("CallId"), headerReplayed: header("Replayed"),
		}
		switch status {
		case http.StatusUnauthorized:
			headers["WWW-Authenticate"] = header("Authenticate")
		case http.StatusMethodNotAllowed:
			headers["Allow"] = header("Allow")
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusConflict:
			headers["Retry-After"] = header("RetryAfter")
		}
		responses[strconv.Itoa(status)] = object{
			"description": http.StatusText(status) + ": " + strings.Join(names, ", ") + ".",
			"headers":     headers,
			"content": object{
				"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}},
			},
		}
	}
}

func (h *handler) openAPI(c *gin.Context, _ *params) error {
	document, err := h.document()
	if err != nil {
		return err
	}
	return h.writeCacheable(c, document)
}
