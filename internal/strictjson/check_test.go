package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const scanDepth = 6

// carefully decodes a text with encoding/json and reports what keeps others from reading it in the same way.
func carefully(text []byte) (value any, err error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something behind the value")
	}
	d = json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	depth, err := walkTokens(d, 1)
	if err == nil && depth > scanDepth {
		err = fmt.Errorf("too deep")
	}
	return value, err
}

// walkTokens returns how deep one value reaches, and fails at a key that appears twice.
func walkTokens(d *json.Decoder, level int) (depth int, err error) {
	token, err := d.Token()
	open, ok := token.(json.Delim)
	if err != nil || !ok {
		return level - 1, err
	}
	depth = level
	keys := make(map[any]bool)
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil || keys[key] {
				return 0, fmt.Errorf("key %v twice (%v)", key, err)
			}
			keys[key] = true
		}
		inner, err := walkTokens(d, level+1)
		if err != nil {
			return 0, err
		}
		depth = max(depth, inner)
	}
	_, err = d.Token()
	return depth, err
}

func TestCheck(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	many := `{"k0":0`
	for i := 1; i < 40; i++ {
		many += fmt.Sprintf(`,"k%d":{}`, i)
	}
	for text, want := range map[string]struct {
		fault Fault
		path  string
	}{
		`{}`: {}, ` {"args":{"text":"h\u00e9llo\n","n":[1,-0.5e+3,0,true,false,null,[],{}]},"timeout_ms":3000} `: {},
		`"é"`: {}, `0`: {}, `-1E9`: {},
		nested(scanDepth): {}, many + `}`: {}, `{"a":1,"A":2,"":3}`: {}, `[{"a":1},{"a":2}]`: {},

		`{"a":1,"a":2}`: {NameTwice, "a"}, `{"a":1,"\u0061":2}`: {NameTwice, "a"}, `{"":1,"":2}`: {NameTwice, ""},
		`{"x":{"y":[{"a":{"b":1,"b":1}}]}}`: {NameTwice, "x.y.0.a.b"}, many + `,"k3":1}`: {NameTwice, "k3"}, many +
			`,"k39":1}`: {NameTwice, "k39"},
		nested(scanDepth + 1): {TooDeep, ""}, strings.Repeat(`{"a":`, 9): {TooDeep, ""}, "\"\xff\"": {NotUTF8, ""},
		``: {Malformed, ""}, ` `: {Malformed, ""}, `{`: {Malformed, ""}, `{}{}`: {Malformed, ""},
		`{"a"}`:  {Malformed, ""},
		`{"a":}`: {Malformed, ""}, `{"a":1,}`: {Malformed, ""}, `{,}`: {Malformed, ""}, `{a:1}`: {Malformed, ""},
		`[1,]`: {Malformed, ""},
		`01`:   {Malformed, ""}, `-`: {Malformed, ""}, `1.`: {Malformed, ""}, `.5`: {Malformed, ""},
		`1e`: {Malformed, ""}, `+1`: {Malformed, ""},
		`tru`: {Malformed, ""}, `nulll`: {Malformed, ""}, `"`: {Malformed, ""}, `"\x"`: {Malformed, ""},
		`"\u12g4"`: {Malformed, ""},
		`"\ud800"`: {Malformed, ""}, `{"\udc00":1}`: {Malformed, ""}, `["\ud83d\ude00"]`: {},
		"\"\n\"": {Malformed, ""}, `"abc\`: {Malformed, ""}, `{"a":1 "b":2}`: {Malformed, ""}, `[1 2]`: {Malformed, ""},
		`{"a":1}]`: {Malformed, ""},
	} {
		if p := Check([]byte(text), scanDepth); p.Fault != want.fault || p.Path != want.path {
			t.Errorf("%s: fault %d at %q, want %d at %q", text, p.Fault, p.Path, want.fault, want.path)
		}
		if got := Valid([]byte(text)); got != (want.fault == 0 || want.fault == TooDeep && text[0] == '[') {
			t.Errorf("%s: valid %v", text, got)
		}
	}
}

// FuzzCheck holds the package against encoding/json: it decodes what that decodes, to the same values, unless there is
// a fault.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,2.50,{"b":"\ud800\n"}],"c":null}`, `{"a":1,"a":2}`, `[[[[[[[1]]]]]]]`, ` [ 1 , "x" ] `, `{"":0}`,
		`1e400`, "\"\xc3\"", `[true,fals]`,
		`{"\u0061":1,"b":2}`, `{"a":{"b":{"b":1,"b":2}}}`, `"\udbff\udfff\udc00"`, `{"type":"x","list":[{},[],""]} `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, ok := Decode(text, scanDepth)
		if p := Check(text, scanDepth); (p.Fault == 0) != ok {
			t.Fatalf("%q: checked and decoded differently", text)
		}
		want, err := carefully(text)
		if loneSurrogate.Match(text) { // encoding/json replaces what is half a character
			return
		}
		if ok != (err == nil) || ok && !reflect.DeepEqual(value, want) {
			t.Fatalf("%q: %v, %#v, want %#v (%v)", text, ok, value, want, err)
		}
		if object, isObject := value.(map[string]any); isObject {
			members, err := Members(nil, text, 1000)
			if err != nil || len(members) != len(object) {
				t.Fatalf("%q: members %q, %v", text, members, err)
			}
			for _, m := range members {
				if inner, ok := Decode(m.Value, scanDepth); !ok || !reflect.DeepEqual(inner, object[string(m.Name)]) {
					t.Errorf("%q: %q is %#v", text, m.Name, inner)
				}
			}
		}
		if array, isArray := value.([]any); isArray {
			items, err := Items(text)
			if err != nil || len(items) != len(array) {
				t.Fatalf("%q: items %q, %v", text, items, err)
			}
			for i, item := range items {
				if inner, ok := Decode(item, scanDepth); !ok || !reflect.DeepEqual(inner, array[i]) {
					t.Errorf("%q: item %d is %#v", text, i, inner)
				}
			}
		}
	})
}

// loneSurrogate matches every text that may have one.
var loneSurrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

func TestMembersAndItems(t *testing.T) {
	object := []byte(" {\"a\\u0062\" : [1, {\"x\":2}] ,\"c\":null,\"d\":\"\\n\"} ")
	members, err := Members(nil, object, 3)
	if got := fmt.Sprintf("%s", members); err != nil || got != `[{ab [1, {"x":2}]} {c null} {d "\n"}]` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := Members(nil, object, 2); err != ErrTooMany {
		t.Errorf("three members of two: %v", err)
	}
	for _, text := range []string{"", "[]", "1", `{"a":1}{}`, `{"a":1`, `{"a":{"b":1,"b":2}}`, `{"a":1,"a":2}`,
		`{"a":"\ud800"}`, "{\"a\":\"\xff\"}"} {
		if members, err := Members(nil, []byte(text), 9); err == nil {
			t.Errorf("%s: %s", text, members)
		}
	}
	for _, text := range []string{`{"a":1,"a":{"b":1,"b":2}}`, `{"a":1,"b":"\ud800"}`, "{\"a\":1,\"b\":\"\xff\"}"} {
		if members, err := LenientMembers([]byte(text), 9); err != nil || len(members) != 2 {
			t.Errorf("%s: %s, %v", text, members, err)
		}
	}
	items, err := Items([]byte(`[1,[2],{"a":3}]`))
	if got := fmt.Sprintf("%s", items); err != nil || got != `[1 [2] {"a":3}]` {
		t.Errorf("%s, %v", got, err)
	}
	for _, text := range []string{"", "{}", "[1", "[1,]", `[{"a":1,"a":2}]`, "[] []"} {
		if items, err := Items([]byte(text)); err == nil {
			t.Errorf("%s: %s", text, items)
		}
	}
}

func BenchmarkStrict(b *testing.B) {
	text := []byte(`{"args":{"text":"0123456789abcdef` + strings.Repeat("x", 64) + `"},"timeout_ms":3000}`)
	for name, read := range map[string]func() bool{
		"check":   func() bool { return Check(text, 64).Fault == 0 },
		"decode":  func() bool { _, ok := Decode(text, 64); return ok },
		"members": func() bool { var room [8]Member; _, err := Members(room[:0], text, 64); return err == nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if !read() {
					b.Fatal("refused")
				}
			}
		})
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[]`: 1, `[1,2,3]`: 3, `{"a":[{},{}],"b":1}`: 6, `"[{,"`: 0, `["\\",",","\",{["]`: 3,
	} {
		if got := Values([]byte(text)); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 { // any text is counted as byte by byte
		text := make([]byte, random.IntN(30))
		want := 0
		var in inString
		for k := range text {
			text[k] = `"\[{,a`[random.IntN(6)]
			if !in.has(text[k]) && strings.IndexByte("[{,", text[k]) >= 0 {
				want++
			}
		}
		if got := Values(text); got != want {
			t.Fatalf("%s: %d, want %d", text, got, want)
		}
	}
}
