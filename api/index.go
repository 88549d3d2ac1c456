package api

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
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
		Name: "farhand", Version: h.Version, OpenAPI: "/openapi.json", MCP: pathMCP, Health: pathHealth, Ready: pathReady,
		Documentation: "https://github.com/farhand/farhand/tree/main/docs", Console: h.Console,
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
