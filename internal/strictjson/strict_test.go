package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

const scanDepth = 6

// carefully decodes a text with encoding/json and reports what keeps others from reading it in the same way.
func carefully(text []byte) (value any, depth int, err error) {
	if !utf8.Valid(text) {
		return nil, 0, fmt.Errorf("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, 0, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, 0, fmt.Errorf("something behind the value")
	}
	d = json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if depth, err = walkTokens(d, 1); err == nil && depth > scanDepth {
		err = fmt.Errorf("too deep")
	}
	return value, depth, err
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

func TestCheckJSON(t *testing.T) {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	many := `{"k0":0`
	for i := 1; i < 40; i++ {
		many += fmt.Sprintf(`,"k%d":{}`, i)
	}
	for text, want := range map[string]struct {
		fault Fault
		path  string
	}{
		`{}`: {}, ` {"args":{"text":"h\u00e9llo\n","n":[1,-0.5e+3,0,true,false,null,[],{}]},"timeout_ms":3000} `: {}, `"é"`: {}, `0`: {}, `-1E9`: {},
		nested(scanDepth): {}, many + `}`: {}, `{"a":1,"A":2,"":3}`: {}, `[{"a":1},{"a":2}]`: {},

		`{"a":1,"a":2}`: {KeyTwice, "a"}, `{"a":1,"\u0061":2}`: {KeyTwice, "a"}, `{"":1,"":2}`: {KeyTwice, ""},
		`{"x":{"y":[{"a":{"b":1,"b":1}}]}}`: {KeyTwice, "x.y.a.b"}, many + `,"k3":1}`: {KeyTwice, "k3"}, many + `,"k39":1}`: {KeyTwice, "k39"},
		nested(scanDepth + 1): {TooDeep, ""}, strings.Repeat(`{"a":`, 9): {TooDeep, ""}, "\"\xff\"": {NotUTF8, ""},
		``: {Malformed, ""}, ` `: {Malformed, ""}, `{`: {Malformed, ""}, `{}{}`: {Malformed, ""}, `{"a"}`: {Malformed, ""},
		`{"a":}`: {Malformed, ""}, `{"a":1,}`: {Malformed, ""}, `{,}`: {Malformed, ""}, `{a:1}`: {Malformed, ""}, `[1,]`: {Malformed, ""},
		`01`: {Malformed, ""}, `-`: {Malformed, ""}, `1.`: {Malformed, ""}, `.5`: {Malformed, ""}, `1e`: {Malformed, ""}, `+1`: {Malformed, ""},
		`tru`: {Malformed, ""}, `nulll`: {Malformed, ""}, `"`: {Malformed, ""}, `"\x"`: {Malformed, ""}, `"\u12g4"`: {Malformed, ""},
		"\"\n\"": {Malformed, ""}, `"abc\`: {Malformed, ""}, `{"a":1 "b":2}`: {Malformed, ""}, `[1 2]`: {Malformed, ""}, `{"a":1}]`: {Malformed, ""},
	} {
		if fault, path := Check([]byte(text), scanDepth); fault != want.fault || path != want.path {
			t.Errorf("%s: fault %d at %q, want %d at %q", text, fault, path, want.fault, want.path)
		}
	}
}

// FuzzCheckJSON holds the scanner against encoding/json: it decodes what that decodes, to the same values, unless there is a
// fault.
func FuzzCheckJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,2.50,{"b":"\ud800\n"}],"c":null}`, `{"a":1,"a":2}`, `[[[[[[[1]]]]]]]`, ` [ 1 , "x" ] `, `{"":0}`, `1e400`, "\"\xc3\"", `[true,fals]`,
		`{"\u0061":1,"b":2}`, `{"a":{"b":{"b":1,"b":2}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, depth, ok := Decode(text, scanDepth)
		if fault, _ := Check(text, scanDepth); (fault == 0) != ok {
			t.Fatalf("%q: checked and decoded differently", text)
		}
		want, wantDepth, err := carefully(text)
		if ok != (err == nil) || ok && (!reflect.DeepEqual(value, want) || depth != wantDepth) {
			t.Errorf("%q: %v, %#v %d, want %#v %d (%v)", text, ok, value, depth, want, wantDepth, err)
		}
	})
}

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"args":{"text":"0123456789abcdef` + strings.Repeat("x", 64) + `"},"timeout_ms":3000}`)
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if fault, _ := Check(text, 64); fault != 0 {
				b.Fatal(fault)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := Decode(text, 64); !ok {
				b.Fatal("refused")
			}
		}
	})
}
