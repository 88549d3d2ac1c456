package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
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

func (h *handler) writeJSON(c *gin.Context, status int, body []byte) {
	header := c.Writer.Header()
	header["Content-Type"], header["Content-Length"] = h.json, []string{strconv.Itoa(len(body))}
	c.Status(status)
	_, _ = c.Writer.Write(body) // the client is gone if this fails
}

// writeCacheable answers 200 with an ETag made of the content, or 304 when the client has exactly this already. Answers
// worth compressing are compressed for clients that can read that. The compressed form is another representation, so it
// has an ETag of its own, and Vary keeps caches from mixing the two up.
func (h *handler) writeCacheable(c *gin.Context, body []byte) {
	compress := len(body) >= gzipMinimum && acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	h.writeTagged(c, body, quoteTag(sha256.Sum256(body), compress), compress)
}

// writeTagged does the same with an ETag made of something else.
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
	h.writeJSON(c, http.StatusOK, body)
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

// noneMatch evaluates If-None-Match for an answer that exists: * matches whatever it is.
func noneMatch(values []string, tag string) bool {
	return matchesTag(values, tag) || matchesTag(values, "*")
}

// matchesTag reports whether a tag is in a list, with the weak comparison RFC 9110 demands for If-None-Match. Our tags
// contain no commas and no quotes, so a list can be split at commas: what that breaks up could not have matched.
func matchesTag(values []string, tag string) bool {
	for _, value := range values {
		for candidate := range strings.SplitSeq(value, ",") {
			if candidate = strings.TrimSpace(candidate); candidate == tag || strings.TrimPrefix(candidate, "W/") == tag {
				return true
			}
		}
	}
	return false
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
