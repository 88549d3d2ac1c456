package schema

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The types as jsonschema.Types has them.
var (
	typeNull    = typeSet("null")
	typeBoolean = typeSet("boolean")
	typeNumber  = typeSet("number")
	typeInteger = typeSet("integer")
	typeString  = typeSet("string")
	typeArray   = typeSet("array")
	typeObject  = typeSet("object")
)

func typeSet(name string) jsonschema.Types {
	var t jsonschema.Types
	t.Add(name)
	return t
}

func typeOf(v any) jsonschema.Types {
	switch v.(type) {
	case nil:
		return typeNull
	case bool:
		return typeBoolean
	case json.Number:
		return typeNumber
	case string:
		return typeString
	case []any:
		return typeArray
	default:
		return typeObject
	}
}

// hasType reports whether a value has one of the types.
func (w *walk) hasType(types jsonschema.Types, v any) bool {
	if types&typeOf(v) != 0 {
		return true
	}
	n, isNumber := v.(json.Number)
	return isNumber && types&typeInteger != 0 && w.isInteger(n)
}

func typeName(v any) string { return typeOf(v).ToStrings()[0] }
