package registry

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

// TestCheckJSONDecides shows that the texts of everyday calls are decided in one walk, and what is not JSON is refused.
func TestCheckJSONDecides(t *testing.T) {
	for _, text := range []string{
		`{}`, ` {"args":{"text":"h\u00e9llo\n","n":[1,-0.5e+3,0,true,false,null,[],{}]},"timeout_ms":3000} `, `"é"`, `0`, `-1E9`,
		strings.Repeat("[", scanDepth) + strings.Repeat("]", scanDepth),
	} {
		if !CheckJSON([]byte(text), scanDepth) {
			t.Errorf("%s was left undecided", text)
		}
	}
	for _, text := range []string{
		``, ` `, `{`, `{}{}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `[1,]`, `[,]`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `nulll`,
		`"`, `"\x"`, `"\u12g4"`, "\"\n\"", "\"\xff\"", `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `[{"a":1,"a":2}]`, `{"a":1,"\u0061":2}`,
		strings.Repeat("[", scanDepth+1) + strings.Repeat("]", scanDepth+1), `"abc\`, `{"a":1 "b":2}`, `[1 2]`, `{"a":1}]`, "{\"a\":\v1}",
	} {
		if CheckJSON([]byte(text), scanDepth) {
			t.Errorf("%s was let through", text)
		}
	}
}

// FuzzCheckJSON holds what is approved of in one walk against encoding/json.
func FuzzCheckJSON(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,2.50,{"b":"\ud800\n"}],"c":null}`, `{"a":1,"a":2}`, `[[[[[[[1]]]]]]]`, ` [ 1 , "x" ] `, `{"":0}`, `1e400`, "\"\xc3\"", `[true,fals]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, depth, ok := DecodeJSON(text, scanDepth)
		if CheckJSON(text, scanDepth) != ok {
			t.Fatalf("%q: checked and decoded differently", text)
		}
		if !ok {
			return
		}
		want, wantDepth, err := carefully(text)
		if err != nil || !reflect.DeepEqual(value, want) || depth != wantDepth {
			t.Errorf("%q: %#v %d, want %#v %d (%v)", text, value, depth, want, wantDepth, err)
		}
	})
}

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"args":{"text":"0123456789abcdef` + strings.Repeat("x", 64) + `"},"timeout_ms":3000}`)
	b.Run("check", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !CheckJSON(text, 64) {
				b.Fatal("undecided")
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := DecodeJSON(text, 64); !ok {
				b.Fatal("undecided")
			}
		}
	})
}
