package api

import (
	"encoding/json"

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
