package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/mcp"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// encode returns v as a line of JSON. It fails only if a json.RawMessage in v is not JSON.
func encode(v any) ([]byte, error) {
	text, err := strictjson.Encode(v)
	return append(text, '\n'), err
}

// each returns what f makes of each element. It is not nil, because JSON has a list even if it is empty.
func each[A, B any](all []A, f func(A) B) []B {
	made := make([]B, len(all))
	for i, a := range all {
		made[i] = f(a)
	}
	return made
}

// writeBody writes a whole answer. A long answer needs a reservation: the one it was built with, or a new one.
func (h *handler) writeBody(c *gin.Context, status int, body []byte) error {
	held := reservationOf(c, keyAnswer)
	if held == nil && len(body) > smallResponse {
		var err error
		if held, err = h.responses.reserveMade(c.Request.Context(), h.owner(c), int64(len(body))); err != nil {
			if isCall(c) { // the tool has run
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
		_, _ = c.Writer.Write(body) // on failure the client is gone
		return nil
	}
	held.writeParts(c.Writer, body)
	return nil
}

func (h *handler) writeJSON(c *gin.Context, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeBody(c, status, body)
}

// writeUncached is writeJSON for an answer that must not be cached.
func (h *handler) writeUncached(c *gin.Context, status int, v any) error {
	c.Header("Cache-Control", "no-store")
	return h.writeJSON(c, status, v)
}

// keyAnswer is the context key of an answer's reservation.
const keyAnswer = "farhand.answer"

// reserveAnswer waits for the bytes of an answer that may be long. They are released when the request ends.
func (h *handler) reserveAnswer(ctx context.Context, c *gin.Context, cost int64) error {
	held, err := h.responses.reserve(ctx, h.owner(c), cost)
	if err == nil {
		c.Set(keyAnswer, held)
	}
	return err
}

// reserving returns a handler that reserves cost bytes for the answer and then calls handle.
func (h *handler) reserving(cost int64, handle handlerFunc) handlerFunc {
	return func(c *gin.Context, q *params) error {
		if err := h.reserveAnswer(c.Request.Context(), c, cost); err != nil {
			return err
		}
		return handle(c, q)
	}
}

// pageBudget is the space left on a page of a list. The last row may exceed it.
type pageBudget struct{ rows, bytes int }

func (b *pageBudget) spent() bool { return b.rows <= 0 || b.bytes <= 0 }

func (b *pageBudget) addRow(bytes int) { b.rows, b.bytes = b.rows-1, b.bytes-bytes }

// writeCacheable answers 200 with an ETag made of the content, or 304 if the client already has this content. Long
// answers are compressed for clients that accept gzip. The compressed form is another representation, so it has its own
// ETag, and Vary keeps caches from confusing the two.
func (h *handler) writeCacheable(c *gin.Context, body []byte) error {
	compress := len(body) >= gzipMinimum && acceptsGzip(c.Request.Header.Values("Accept-Encoding"))
	return h.writeTagged(c, body, quoteTag(sha256.Sum256(body), compress), compress)
}

func (h *handler) writeTagged(c *gin.Context, body []byte, tag string, compress bool) error {
	known := c.Request.Header.Values("If-None-Match")
	if matchesTag(known, tag) || matchesTag(known, "*") { // the asterisk matches any existing answer
		return h.notModified(c, tag)
	}
	setCacheHeaders(c.Writer.Header(), tag)
	if compress {
		c.Writer.Header().Set("Content-Encoding", "gzip")
		body = h.compress(body)
	}
	return h.writeBody(c, http.StatusOK, body)
}

// respond encodes v and writes it with writeCacheable.
func (h *handler) respond(c *gin.Context, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	return h.writeCacheable(c, body)
}

// matchesTag reports whether a tag is in a list, with the weak comparison that RFC 9110 demands for If-None-Match. The
// gateway's tags have no commas and no inner quotes, so the list can be split at commas: a tag with a comma could not
// match.
func matchesTag(values []string, tag string) bool {
	for candidate := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if strings.TrimPrefix(strings.TrimSpace(candidate), "W/") == tag {
			return true
		}
	}
	return false
}

// fail is the only place where an error becomes a response. It also ends the chain of handlers. The response to a tool
// call always has the call's id and whether the device can have run it: an error without that information happened
// before dispatch. Responses to other requests have neither. Below /v1 the response is in OpenAI's format, at /mcp in
// JSON-RPC's.
func (h *handler) fail(c *gin.Context, err error) {
	e := *registry.AsError(err)
	if why := interrupted(c.Request.Context(), &e); why != nil {
		e.Code, e.Message, e.RetryAfter, e.Cause = why.Code, why.Message, why.RetryAfter, nil
		err = &e
	}
	if isCall(c) {
		if e.CallID == "" {
			e.CallID = notedCall(c)
		}
		if e.Dispatched == "" {
			e.Dispatched = registry.DispatchedNo
		}
		noteCall(c, e.CallID)
	} else {
		e.CallID, e.Dispatched = "", ""
	}
	noteFailure(c, e)
	c.Abort()
	if isOpenAI(c.Request.URL.Path) {
		openai.WriteError(c.Writer, err)
		return
	}
	if isMCP(c.Request.URL.Path) {
		_ = mcp.WriteError(c.Writer, &e) // on failure the client is gone
		return
	}
	p := auth.ProblemOf(&e)
	p.TraceID = trace.ID(c.Request.Context())
	_ = auth.WriteProblem(c.Writer, p) // on failure the client is gone
}

// noteFailure sets why a request failed, for the log, with a code that clients may see.
func noteFailure(c *gin.Context, e registry.Error) {
	e.Code = auth.ProblemOf(&e).Code
	c.Set(keyFailure, &e)
}

// interrupted returns why a request ended before its answer, or nil if its failure e has another reason. When a client
// hangs up, the store's reads for it fail although the store works.
func interrupted(ctx context.Context, e *registry.Error) *registry.Error {
	if ended := endedIdentity(ctx); ended != nil {
		return ended
	}
	if ctx.Err() == nil || !errors.Is(e.Cause, context.Canceled) {
		return nil
	}
	if errors.Is(context.Cause(ctx), registry.ErrDraining) {
		return draining()
	}
	return registry.Errorf(registry.CodeCancelled, "The request was cancelled because its client disconnected.")
}

// isOpenAI reports whether clients of a path expect OpenAI's format.
func isOpenAI(path string) bool { return strings.HasPrefix(path, openai.Prefix) }

func isCall(c *gin.Context) bool {
	if c.Request.Method != http.MethodPost {
		return false
	}
	path := c.FullPath()
	return path == pathCall || path == pathSessionCall || path == pathCalls
}

// nameCall gives a call its id before anything can fail.
func (h *handler) nameCall(c *gin.Context) {
	if isCall(c) {
		noteCall(c, registry.NewCallID())
	}
}

// noteCall sets the id of the call of a response, for the client and the log.
func noteCall(c *gin.Context, callID string) {
	header := c.Writer.Header()
	if noted := header[headerCallID]; len(noted) == 1 && noted[0] == callID {
		return
	}
	header[headerCallID] = []string{callID}
}

func notedCall(c *gin.Context) string { return c.Writer.Header().Get(headerCallID) }

// gzipMinimum is the minimum length of a compressed answer, in bytes. A shorter answer fits one TCP segment anyway.
const gzipMinimum = 1400

// compress compresses an answer. Compressors are large, so they are reused.
func (h *handler) compress(body []byte) []byte {
	var b bytes.Buffer
	zw, ok := h.compressors.Get().(*gzip.Writer)
	if ok {
		zw.Reset(&b)
	} else {
		zw, _ = gzip.NewWriterLevel(&b, gzip.BestSpeed) // fails only for a level that does not exist
	}
	defer h.compressors.Put(zw)
	_, _ = zw.Write(body) // writing to a buffer does not fail
	_ = zw.Close()
	return b.Bytes()
}

// acceptsGzip evaluates Accept-Encoding: gzip by name wins over *, and a quality of zero rejects it, as does an invalid
// one.
func acceptsGzip(values []string) bool {
	named, others := -1.0, -1.0
	for item := range strings.SplitSeq(strings.Join(values, ","), ",") {
		coding, _, _ := strings.Cut(item, ";")
		_, options, err := mime.ParseMediaType(item)
		quality := 1.0
		if q, given := options["q"]; given && err == nil {
			quality, err = strconv.ParseFloat(q, 64)
		}
		if err != nil || quality < 0 || quality > 1 {
			quality = 0
		}
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			named = max(named, quality)
		case "*":
			others = quality
		}
	}
	if named >= 0 {
		return named > 0
	}
	return others > 0
}

// appendParts appends the parts of a result, encoded like encoding/json.
func appendParts(b []byte, parts []registry.Part) []byte {
	b = append(b, '[')
	for i := range parts {
		p := &parts[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strictjson.AppendString(append(b, `{"type":`...), string(p.Type))
		b = strictjson.AppendString(append(b, `,"mime_type":`...), p.MIMEType)
		if p.Name != "" {
			b = strictjson.AppendString(append(b, `,"name":`...), p.Name)
		}
		if p.URI != "" {
			b = strictjson.AppendString(append(b, `,"uri":`...), p.URI)
		}
		if len(p.Data) > 0 {
			b = append(base64.StdEncoding.AppendEncode(append(b, `,"data":"`...), p.Data), '"')
		}
		if p.URL != "" {
			b = strictjson.AppendString(append(b, `,"url":`...), p.URL)
		}
		b = append(strconv.AppendInt(append(b, `,"size":`...), p.Size, 10), '}')
	}
	return append(b, ']')
}
