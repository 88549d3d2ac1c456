package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// encode returns v as JSON without escaping what only HTML needs escaped. It fails only if a json.RawMessage in v is
// not JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// writeBody writes a whole answer. A long one needs room: what was reserved while it was made, or what it gets now.
func (h *handler) writeBody(c *gin.Context, status int, body []byte) {
	held := reserved(c)
	if held == nil && len(body) > smallResponse {
		var err error
		if held, err = h.responses.reserveMade(c.Request.Context(), int64(len(body))); err != nil {
			if isCall(c) { // its tool has run
				err = registry.AsError(err).With(registry.DispatchedYes)
			}
			h.fail(c, err)
			return
		}
		defer held.release()
	}
	header := c.Writer.Header()
	header["Content-Type"], header["Content-Length"] = h.json, []string{strconv.Itoa(len(body))}
	c.Status(status)
	if held != nil {
		held.shrink(len(body))
	}
	if held == nil || len(body) <= smallResponse {
		_, _ = c.Writer.Write(body) // the client is gone if this fails
		return
	}
	held.writeParts(c.Writer, body)
}

// writeJSON writes v as a whole answer.
func (h *handler) writeJSON(c *gin.Context, status int, v any) {
	body, err := encode(v)
	if err != nil {
		h.fail(c, err)
		return
	}
	h.writeBody(c, status, body)
}

// keyRoom names the room for the answer in the context of a request.
const keyRoom = "farhand.room"

// reserved returns the room that is reserved for the answer, nil if there is none.
func reserved(c *gin.Context) *hold {
	held, _ := c.Get(keyRoom)
	p, _ := held.(*hold)
	return p
}

// reserving returns a handler that waits for room and then has handle make an answer that may be long.
func (h *handler) reserving(cost int64, handle func(*gin.Context, params)) func(*gin.Context, params) {
	return func(c *gin.Context, q params) {
		held, err := h.responses.reserve(c.Request.Context(), cost)
		if err != nil {
			h.fail(c, err)
			return
		}
		defer held.release()
		c.Set(keyRoom, held)
		handle(c, q)
	}
}

// pageBudget is what still fits on a page of a list. The last row may exceed it.
type pageBudget struct{ rows, bytes int }

func newPageBudget(rows int) pageBudget { return pageBudget{rows, pageBytes} }

func (b *pageBudget) spent() bool { return b.rows <= 0 || b.bytes <= 0 }

func (b *pageBudget) addRow(bytes int) { b.rows, b.bytes = b.rows-1, b.bytes-bytes }

// writeCacheable answers 200 with an ETag made of the content, or 304 when the client has exactly this already. An
// answer that is worth it is compressed for clients that accept that. The compressed form is another representation, so
// it has an ETag of its own, and Vary keeps caches from confusing the two.
func (h *handler) writeCacheable(c *gin.Context, body []byte) {
	compress := len(body) >= gzipMinimum && acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	h.writeTagged(c, body, quoteTag(sha256.Sum256(body), compress), compress)
}

// writeTagged does the same with the given ETag.
func (h *handler) writeTagged(c *gin.Context, body []byte, tag string, compress bool) {
	if noneMatch(c.Request.Header.Values("If-None-Match"), tag) {
		h.notModified(c, tag)
		return
	}
	setCacheHeaders(c.Writer.Header(), tag)
	if compress {
		c.Writer.Header().Set("Content-Encoding", "gzip")
		body = h.zip.compress(body)
	}
	h.writeBody(c, http.StatusOK, body)
}

// respond encodes v and writes it as writeCacheable does.
func (h *handler) respond(c *gin.Context, v any) {
	body, err := encode(v)
	if err != nil {
		h.fail(c, err)
		return
	}
	h.writeCacheable(c, body)
}

// noneMatch evaluates If-None-Match for an answer that exists, which * matches.
func noneMatch(values []string, tag string) bool {
	return matchesTag(values, tag) || matchesTag(values, "*")
}

// matchesTag reports whether a tag is in a list, with the weak comparison that RFC 9110 demands for If-None-Match. Our
// tags have no commas and no quotes, so the list can be split at commas: a tag with a comma could not have matched.
func matchesTag(values []string, tag string) bool {
	for _, value := range values {
		for candidate := range strings.SplitSeq(value, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == tag || strings.TrimPrefix(candidate, "W/") == tag {
				return true
			}
		}
	}
	return false
}
