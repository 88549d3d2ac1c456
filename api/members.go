package api

import (
	"bytes"
	"encoding/json"

	"github.com/farhand/farhand/internal/strictjson"
)

// member is one field of an object: its name as it is meant, its value as it was sent.
type member struct {
	name  []byte
	value json.RawMessage
}

// memberList is the fields of an object: few enough to look through.
type memberList []member

func (l memberList) get(name string) (json.RawMessage, bool) {
	for _, m := range l {
		if string(m.name) == name {
			return m.value, true
		}
	}
	return nil, false
}

// usualMembers is how many fields most bodies have at most.
const usualMembers = 4

// members returns the fields of an object of a body that was checked, nil if text is no object.
func members(text []byte) memberList {
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' {
		return nil
	}
	fields := make(memberList, 0, usualMembers)
	for name, value := range strictjson.Members(text) {
		fields = append(fields, member{name, value})
	}
	return fields
}
