package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// smallBody is the length up to which a body needs no reservation. Its memory is allocated before the body arrives.
	smallBody = 16 << 10

	// bodyPart is how many bytes of a longer body must arrive within stallGrace while others wait.
	bodyPart = 64 << 10

	// Context keys: keyServed holds the function that counts a request out, keyStore the one that ends its reads of the
	// store, and keyBody the reservation of its body.
	keyServed = "farhand.served"
	keyStore  = "farhand.store"
	keyBody   = "farhand.body"
)

// newBodies returns the budget for longer bodies: those that are arriving, those of requests being answered, and those
// of calls that no device has received. Small bodies need no reservation, so they do not wait for long ones.
func newBodies(limit int64) *byteBudget {
	r := newByteBudget(share.Bounds{Pod: limit}, (*http.ResponseController).SetReadDeadline)
	r.full = "This pod's memory for long requests, or this tenant's share of it, is full. Retry after a moment, or " +
		"send less at a time."
	return r
}

// readBody reads the body of a request to its end, so that net/http detects a caller that hangs up later. A body longer
// than limit is rejected before any of it is read. The caller must release held, if it is not nil.
func (r *byteBudget) readBody(
	w http.ResponseWriter, req *http.Request, by share.Owner, limit int64,
) (body []byte, held *reservation, err error) {
	if err := checkMediaType(req); err != nil {
		return nil, nil, err
	}
	if req.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	if req.ContentLength >= 0 && req.ContentLength <= smallBody { // net/http reads no more than was announced
		body = make([]byte, req.ContentLength)
		_, err = io.ReadFull(req.Body, body)
		return body, nil, readError(err, limit)
	}
	length := limit
	if req.ContentLength > 0 {
		length = req.ContentLength
	}
	if held, err = r.reserve(req.Context(), by, length); err != nil {
		return nil, nil, err
	}
	bounded := http.MaxBytesReader(ssewriter.Innermost(w), req.Body, limit)
	body, err = held.readParts(http.NewResponseController(w), bounded)
	if err != nil {
		held.release()
		return nil, nil, readError(err, limit)
	}
	return body, held, nil
}

// readParts reads a body of at most h.size bytes, in parts. It allocates memory for the bytes that have arrived, not
// for the announced length.
func (h *reservation) readParts(control *http.ResponseController, from io.Reader) ([]byte, error) {
	defer h.endTransfer()
	body := make([]byte, 0, smallBody)
	for {
		if !h.nextPart(control) {
			return nil, h.budget.busy()
		}
		rest := int(h.size) - len(body)
		if want := max(min(smallBody, rest), 1); cap(body)-len(body) < want { // the end may still have to be read
			body = slices.Grow(body, max(min(cap(body), rest), want))
		}
		until := len(body) + min(bodyPart, cap(body)-len(body))
		for len(body) < until {
			n, err := from.Read(body[len(body):until])
			body = body[:len(body)+n]
			switch {
			case err == io.EOF:
				return body, nil
			case err != nil && !h.endTransfer():
				return nil, h.budget.busy()
			case err != nil:
				return nil, err
			}
		}
	}
}

// readBody reads the body of a request. Its reservation is released when the request ends, unless takeBody takes it
// over.
func (h *handler) readBody(c *gin.Context) ([]byte, error) {
	body, held, err := h.bodies.readBody(c.Writer, c.Request, h.owner(c), h.MaxBody)
	if held != nil {
		c.Set(keyBody, held)
	}
	if err == nil {
		err = h.countServed(c)
	}
	return body, err
}

// takeBody returns the function that releases a body's reservation. Its caller must call it. It is nil if the body has
// no reservation.
func takeBody(c *gin.Context) (release func()) {
	if held := reservationOf(c, keyBody); held != nil {
		c.Set(keyBody, nil)
		return held.release
	}
	return nil
}

// reservationOf returns the reservation of a request's body or answer, or nil if there is none.
func reservationOf(c *gin.Context, key string) *reservation {
	held, _ := c.Get(key)
	r, _ := held.(*reservation)
	return r
}

func releaseAll(c *gin.Context) {
	for _, key := range []string{keyServed, keyStore} {
		if end, ok := c.Get(key); ok {
			end.(func())()
		}
	}
	for _, key := range []string{keyBody, keyAnswer} {
		if held := reservationOf(c, key); held != nil {
			held.release()
		}
	}
}

// readAs reads the body of a request and parses it with parse. Long bodies are parsed one at a time.
func readAs[T any](h *handler, c *gin.Context, parse func([]byte) (T, error)) (parsed T, err error) {
	body, err := h.readBody(c)
	if err != nil {
		return parsed, err
	}
	if len(body) > smallBody {
		done, err := h.Invoker.Read(c.Request.Context(), caller(c).Owner(), len(body))
		if err != nil {
			return parsed, err
		}
		defer done()
	}
	return parse(body)
}

func readError(err error, limit int64) error {
	var coded *registry.Error
	switch big := (*http.MaxBytesError)(nil); {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &big):
		return tooLarge(limit)
	default:
		return registry.Errorf(registry.CodeInvalidRequest, "The body could not be read completely.")
	}
}

func tooLarge(limit int64) error {
	return registry.Errorf(registry.CodePayloadTooLarge, "The body is larger than the limit of %d bytes.", limit)
}

// checkMediaType accepts JSON, and requests without a media type. It rejects form posts, which a foreign web page can
// make a browser send.
func checkMediaType(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return registry.Errorf(registry.CodeUnsupportedMedia,
			"Compressed bodies are not supported. Send the body without Content-Encoding.")
	}
	value := r.Header.Get("Content-Type")
	if value == "" || value == "application/json" { // nearly every request
		return nil
	}
	media, options, err := mime.ParseMediaType(value)
	charset := options["charset"]
	if err != nil || media != "application/json" && !strings.HasSuffix(media, "+json") ||
		charset != "" && !strings.EqualFold(charset, "utf-8") {
		return registry.Errorf(registry.CodeUnsupportedMedia, "The body must be application/json in UTF-8.")
	}
	return nil
}

// readBodyObject checks a body and splits it into its fields, in one pass. Names must match exactly. A name that is not
// in known is an error.
func readBodyObject(body []byte, known ...string) (memberList, error) {
	fields, err := jsonbody.Members(body)
	if err != nil {
		return nil, err
	}
	return knownFields(fields, "", known)
}

// readObject is readBodyObject for an object inside a body that was checked. at is its path, for error messages.
func readObject(text []byte, at string, known ...string) (memberList, error) {
	fields, err := strictjson.Members(nil, text, math.MaxInt)
	if err != nil {
		return nil, wrongType(at, "a JSON object")
	}
	return knownFields(fields, at, known)
}

func knownFields(fields memberList, at string, known []string) (memberList, error) {
	var unknown []string
	for _, f := range fields {
		if !slices.Contains(known, string(f.Name)) {
			unknown = append(unknown, string(f.Name))
		}
	}
	if len(unknown) == 0 {
		return fields, nil
	}
	name := slices.Min(unknown) // the same request gets the same answer
	for _, k := range known {
		if strings.EqualFold(name, k) {
			return nil, registry.Errorf(registry.CodeInvalidRequest, "The field %.120q must be spelled %q.",
				join(at, name), join(at, k))
		}
	}
	return nil, registry.Errorf(registry.CodeInvalidRequest, "The field %.120q is unknown. Known fields: %s.",
		join(at, name), strings.Join(known, ", "))
}

// readString reads a string. It must not be empty, because an empty filter would restrict nothing.
func readString(text []byte, at string) (string, error) {
	var s string
	if text[0] != '"' || json.Unmarshal(text, &s) != nil {
		return "", wrongType(at, "a string")
	}
	if s == "" {
		return "", registry.Errorf(registry.CodeInvalidRequest,
			"The field %.120q must not be empty. Leave it out instead.", at)
	}
	return s, nil
}

// readEither reads a string that must be one of two values.
func readEither[S ~string](text []byte, at string, one, other S) (S, error) {
	s, err := readString(text, at)
	if err == nil && S(s) != one && S(s) != other {
		err = wrongType(at, fmt.Sprintf("%q or %q", one, other))
	}
	return S(s), err
}

func missing(name string) error {
	return registry.Errorf(registry.CodeInvalidRequest, "The field %q is missing.", name)
}

func wrongType(at, want string) error {
	if at == "" {
		return registry.Errorf(registry.CodeInvalidRequest, "The body must be %s.", want)
	}
	return registry.Errorf(registry.CodeInvalidRequest, "The field %.120q must be %s.", at, want)
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// memberList holds the members of an object. They are few, so get searches them linearly.
type memberList []strictjson.Member

func (l memberList) get(name string) (json.RawMessage, bool) {
	for _, m := range l {
		if string(m.Name) == name {
			return m.Value, true
		}
	}
	return nil, false
}

// request is a decoded body of a request. T is its type in package wire, whose fields are the only ones allowed.
type request[T any] struct {
	said   T
	fields memberList // as sent; null and empty values are like absent ones in said
}

func (r request[T]) has(name string) bool {
	_, ok := r.fields.get(name)
	return ok
}

// readRequest decodes a body. wants has, by the names of fields, what they must be if not texts; for error messages.
func readRequest[T any](body []byte, wants map[string]string) (r request[T], err error) {
	if r.fields, err = readBodyObject(body, fieldsOf[T]()...); err != nil {
		return r, err
	}
	// These functions read names of nested objects. The names of the body itself are already known, and no name appears
	// twice.
	err = jsonv2.Unmarshal(body, &r.said, jsonv2.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true))
	return r, fieldError(err, wants)
}

// readStrict is readRequest for requests whose texts can be neither null nor empty.
func readStrict[T any](body []byte, wants map[string]string) (r request[T], err error) {
	if r, err = readRequest[T](body, wants); err != nil {
		return r, err
	}
	for _, name := range fieldsOf[T]() {
		if text, ok := r.fields.get(name); ok && wants[name] == "" {
			if _, err := readString(text, name); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// orNothing returns a body, or {} if it is empty.
func orNothing(body []byte) []byte {
	if len(bytes.TrimSpace(body)) == 0 {
		return []byte("{}")
	}
	return body
}

func fieldsOf[T any]() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// fieldError returns the error for a field of the wrong type, for an error of decoding a body that is valid JSON.
func fieldError(err error, wants map[string]string) error {
	if err == nil {
		return nil
	}
	var wrong *jsonv2.SemanticError
	if !errors.As(err, &wrong) {
		return err
	}
	for name := range wrong.JSONPointer.Tokens() { // the first
		if want := wants[name]; want != "" {
			return wrongType(name, want)
		}
		return wrongType(name, "a string")
	}
	return wrongType("", "a JSON object")
}
