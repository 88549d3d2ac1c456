package registry

import "github.com/farhand/farhand/internal/strictjson"

// JSON is one JSON value that was checked where it entered the gateway: valid grammar and UTF-8, no name twice in an
// object (RFC 7493). The type is the proof: what takes a JSON does not check it again. The zero value is none.
type JSON = strictjson.Value

// ParseJSON checks a text and keeps it, so it must not be changed afterwards. The error says what is wrong with it.
func ParseJSON(text []byte) (JSON, error) { return strictjson.Parse(text) }

// MustJSON is ParseJSON for texts of the program itself. It panics where ParseJSON fails.
func MustJSON(text string) JSON { return strictjson.Must(text) }
