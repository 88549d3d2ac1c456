package api

import (
	"bytes"
	"context"
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

// writeBody writes a whole answer. A long one needs a reservation: the one it was made with, or a new one.
func (h *handler) writeBody(c *gin.Context, status int, body []byte) error {
	held := reservationOf(c, keyAnswer)
	if held == nil && len(body) > smallResponse {
		var err error
		if held, err = h.responses.reserveMade(c.Request.Context(), h.owner(c), int64(len(body))); err != nil {
			if isCall(c) { // its tool has run
				err = registry.AsError(err).With(registry.DispatchedYes)
			}
			return err
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
		return nil
	}
	held.writeParts(c.Writer, body)
	return nil
}

// writeJSON writes v as a whole answer.
func (h *handler) writeJSON(c *gin.Context, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeBody(c, status, body)
}

// keyAnswer names the reservation of the answer in the context of a request.
const keyAnswer = "farhand.answer"

// reserveAnswer waits for the bytes of an answer that may be long. They are released when the request ends.
func (h *handler) reserveAnswer(ctx context.Context, c *gin.Context, cost int64) error {
	held, err := h.responses.reserve(ctx, h.owner(c), cost)
	if err == nil {
		c.Set(keyAnswer, held)
	}
	return err
}

// reserving returns a handler that reserves an answer and then has handle make it.
func (h *handler) reserving(cost int64, handle handlerFunc) handlerFunc {
	return func(c *gin.Context, q params) error {
		if err := h.reserveAnswer(c.Request.Context(), c, cost); err != nil {
			return err
		}
		return handle(c, q)
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
func (h *handler) writeCacheable(c *gin.Context, body []byte) error {
	compress := len(body) >= gzipMinimum && acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	return h.writeTagged(c, body, quoteTag(sha256.Sum256(body), compress), compress)
}

// writeTagged does the same with the given ETag.
func (h *handler) writeTagged(c *gin.Context, body []byte, tag string, compress bool) error {
	known := c.Request.Header.Values("If-None-Match")
	if matchesTag(known, tag) || matchesTag(known, "*") { // the asterisk means any answer that exists
		return h.notModified(c, tag)
	}
	setCacheHeaders(c.Writer.Header(), tag)
	if compress {
		c.Writer.Header().Set("Content-Encoding", "gzip")
		body = h.zip.compress(body)
	}
	return h.writeBody(c, http.StatusOK, body)
}

// respond encodes v and writes it as writeCacheable does.
func (h *handler) respond(c *gin.Context, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeCacheable(c, body)
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
