package api

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/farhand/farhand/internal/strictjson"
)

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

// usualMembers is the number of members that most bodies do not exceed.
const usualMembers = 4

// members returns the members of an object of a body that was checked, nil if text is no object.
func members(text []byte) memberList {
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' {
		return nil
	}
	list, _ := strictjson.Members(make([]strictjson.Member, 0, usualMembers), text, math.MaxInt) // without an error: it was checked
	return list
}
