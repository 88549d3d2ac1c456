package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Errors of a stream that its server does not report.
var (
	errCutOff   = errors.New("the stream ended before the answer did")
	errNonsense = errors.New("the stream makes no sense")
)

// tooLong is the error of an answer that exceeds a limit. It is not retried: the next answer would be as long.
type tooLong struct{ bound string }

func (e tooLong) Error() string { return "the answer is longer than " + e.bound }

// maxServerText is the maximum length of a server's message that is shown, in characters.
const maxServerText = 300

// statusOverloaded is a non-standard status of Anthropic.
const statusOverloaded = 529

// failure is the error of one attempt, and whether it is temporary.
type failure struct {
	err     *Error
	passing bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// refused returns the failure for an HTTP status, or for a stream event that corresponds to a status.
func (c *caller) refused(status int, text string, advice time.Duration) *failure {
	kind, sentence := KindFailure, "The provider of %q failed (%d). Try again later."
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = KindAuth
		sentence = "The provider of %q does not accept this gateway's key (%d). Ask the operator to check it."
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		kind, sentence = KindRequest, "The model %q does not take the request (%d)."
	case http.StatusTooManyRequests:
		kind, sentence = KindLimit, "The provider of %q takes no more requests for now (%d). Try again later."
	}
	e := &Error{Kind: kind, Message: fmt.Sprintf(sentence, c.cfg.Name, status), Status: status, RetryAfter: advice}
	switch text = c.presentable(text); {
	case text == "":
	case kind == KindAuth, kind == KindLimit, status == http.StatusPaymentRequired:
		// The text is about the key or the account. It is for the operator, not for the users of the model.
		e.Cause = serverWords(text)
	default:
		e.Message += " It says: " + text
	}
	return &failure{err: e, passing: mayPass(status)}
}

// serverWords is a server's own message, for the log only.
type serverWords string

func (t serverWords) Error() string { return "it says: " + string(t) }

func mayPass(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// presentable makes a server's text fit for people and logs: one short line without the API key, which some servers
// repeat in their errors.
func (c *caller) presentable(text string) string {
	if c.cfg.APIKey != "" {
		text = strings.ReplaceAll(text, c.cfg.APIKey, "[key]")
	}
	text = strings.ToValidUTF8(text, "�")
	blank := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
	text = strings.Join(strings.FieldsFunc(text, blank), " ")
	if runes := []rune(text); len(runes) > maxServerText {
		text = string(runes[:maxServerText-1]) + "…"
	}
	return text
}

// statusOf returns the status that corresponds to the type or code of an error in a stream.
func statusOf(name string) (int, bool) {
	switch name {
	case "overloaded_error":
		return statusOverloaded, true
	case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota":
		return http.StatusTooManyRequests, true
	case "invalid_request_error", "context_length_exceeded", "BadRequestError":
		return http.StatusBadRequest, true
	case "authentication_error", "invalid_api_key":
		return http.StatusUnauthorized, true
	case "permission_error":
		return http.StatusForbidden, true
	case "not_found_error", "model_not_found":
		return http.StatusNotFound, true
	case "request_too_large":
		return http.StatusRequestEntityTooLarge, true
	case "billing_error":
		return http.StatusPaymentRequired, true
	case "timeout_error":
		return http.StatusGatewayTimeout, true
	}
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 400 && n < 600
}

// reportedIn returns the failure that a stream event reports.
func (c *caller) reportedIn(event []byte) *failure {
	status, text := reported(event)
	return c.refused(status, text, 0)
}

// reported parses the error in a body or a stream: {"error":{"message","type","code"}} of the vendors,
// {"error":"text"}, {"message":…} and {"detail":…} of others, or text that is not JSON. Without a known type or code,
// the status is 500.
func reported(data []byte) (status int, text string) {
	var body struct {
		Error, Message, Detail json.RawMessage
	}
	if json.Unmarshal(data, &body) != nil {
		return http.StatusInternalServerError, string(data)
	}
	var inner struct {
		Message, Type, Code json.RawMessage
	}
	_ = json.Unmarshal(body.Error, &inner) // an error that is a string leaves it empty
	status = http.StatusInternalServerError
	for _, name := range []json.RawMessage{inner.Code, inner.Type} {
		if s, ok := statusOf(plain(name)); ok {
			status = s
			break
		}
	}
	for _, text := range []json.RawMessage{inner.Message, body.Error, body.Message, body.Detail} {
		if t := plain(text); t != "" {
			return status, t
		}
	}
	return status, string(data)
}

// paramOf returns the request parameter that a server reports as wrong. It is empty if the server names none.
func paramOf(data []byte) string {
	var body struct{ Error struct{ Param string } }
	_ = json.Unmarshal(data, &body) // invalid JSON leaves it empty
	return body.Error.Param
}

// plain returns the text of a JSON string, and any other value as written.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// adviceOf returns how long a server asks to wait. Zero: no advice.
func adviceOf(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	value := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(value, 64); err == nil {
		return seconds(s)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// seconds converts seconds from a server to a Duration, at most one day. Longer waits make no difference, and a
// Duration holds at most 292 years.
func seconds(s float64) time.Duration {
	if !(s > 0) { // also NaN
		return 0
	}
	return time.Duration(min(s, 24*60*60) * float64(time.Second))
}
