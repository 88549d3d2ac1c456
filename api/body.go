package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/farhand/farhand/api/internal/jsonbody"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// readError returns why a body was not read.
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
		return registry.Errorf(registry.CodeInvalidRequest, "The body could not be read to its end.")
	}
}

func tooLarge(limit int64) error {
	return registry.Errorf(registry.CodePayloadTooLarge, "The body is larger than the limit of %d bytes.", limit)
}

// checkMediaType accepts JSON, and requests without a media type. It refuses the form posts that a foreign web page can
// have a browser send.
func checkMediaType(r *http.Request) error {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return registry.Errorf(registry.CodeUnsupportedMedia,
			"Compressed bodies are not read. Send it without Content-Encoding.")
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

// readObject is readBodyObject for an object in a body, which has been checked. at is its path, for messages.
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
		if !isOneOf(f.Name, known) {
			unknown = append(unknown, string(f.Name))
		}
	}
	if len(unknown) == 0 {
		return fields, nil
	}
	name := slices.Min(unknown) // the same answer for the same request
	for _, k := range known {
		if strings.EqualFold(name, k) {
			return nil, registry.Errorf(registry.CodeInvalidRequest, "The field %.120q must be written %q.",
				join(at, name), join(at, k))
		}
	}
	return nil, registry.Errorf(registry.CodeInvalidRequest, "The field %.120q is unknown. Known here: %s.",
		join(at, name), strings.Join(known, ", "))
}

func isOneOf(name []byte, known []string) bool {
	for _, k := range known {
		if string(name) == k {
			return true
		}
	}
	return false
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

// readEither reads a string that must be one of two.
func readEither[S ~string](text []byte, at string, one, other S) (S, error) {
	s, err := readString(text, at)
	if err == nil && S(s) != one && S(s) != other {
		err = wrongType(at, fmt.Sprintf("%q or %q", one, other))
	}
	return S(s), err
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

// memberList is the members of an object. They are few, so get searches them one by one.
type memberList []strictjson.Member

func (l memberList) get(name string) (json.RawMessage, bool) {
	for _, m := range l {
		if string(m.Name) == name {
			return m.Value, true
		}
	}
	return nil, false
}
