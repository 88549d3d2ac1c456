package provider

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
)

// maxValues is how many values of JSON one event may have. An empty choice takes three bytes of it, and some hundred in
// memory.
const maxValues = 1 << 16

// Servers that speak like a vendor do not write every value in the type the vendor does. What can be understood is.

// lenientString is a string. Another value counts as the text it is written as: arguments that are an object, an id
// that is a number. null is empty.
type lenientString string

// UnmarshalJSON implements json.Unmarshaler.
func (s *lenientString) UnmarshalJSON(data []byte) error {
	*s = lenientString(plain(data))
	return nil
}

// lenientInt is a whole number, which may be written as a fraction or as a string. Anything else is 0.
type lenientInt int64

// UnmarshalJSON implements json.Unmarshaler.
func (n *lenientInt) UnmarshalJSON(data []byte) error {
	const exact = 1 << 53 // of a float64
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if *n = 0; err == nil && f > -exact && f < exact {
		*n = lenientInt(f)
	}
	return nil
}

// decode reads the data of an event. A member that should be an object or a list and is none counts as absent.
func decode(data []byte, into any) error {
	if strictjson.Values(data) > maxValues {
		return errNonsense
	}
	err := json.Unmarshal(data, into)
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && kind.Field != "" {
		return nil
	}
	if err != nil {
		return errNonsense
	}
	return nil
}
