package fields

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/internal/strictjson"
)

// Names that differ in case only are found in objects of few and of many fields, whatever letters they have.
func TestNamesInTwoCases(t *testing.T) {
	for name, twin := range map[string]string{
		"session": "\u017fESSION", "kind": "\u212aind", "STRASSE": "strasse", "\u0394": "\u03b4",
		"é": "É", "a_b": "A_B", "x": "", "ß": "", "\ufb01": "", "sesslon": "",
	} {
		for _, others := range []int{0, 20} {
			members := []strictjson.Member{{Name: []byte("session_id")}, {Name: []byte(name)}}
			for i := range others {
				members = append(members, strictjson.Member{Name: fmt.Append(nil, "other", i)})
			}
			if got := foldedTwice(members); got != "" {
				t.Errorf("%q beside %d others: %s", name, others, got)
			}
			if twin == "" {
				twin = "y"
			}
			got := foldedTwice(append(members, strictjson.Member{Name: []byte(twin)}))
			if (got != "") != (twin != "y") {
				t.Errorf("%q and %q beside %d others: %q", name, twin, others, got)
			}
		}
	}
}

// BenchmarkLongNames splits a frame whose names are as long, and begin as much alike, as they can.
func BenchmarkLongNames(b *testing.B) {
	var frame strings.Builder
	frame.WriteString(`{"type":"abort"`)
	for i := range maxMembers - 1 {
		name := strings.Repeat("\u0414", 8<<10)
		if i%2 == 1 {
			name = strings.Repeat("\u0434", 8<<10)
		}
		fmt.Fprintf(&frame, `,"%s%d":0`, name, i)
	}
	frame.WriteString("}")
	data := []byte(frame.String())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := Message(nil, data); err != nil {
			b.Fatal(err)
		}
	}
}
