package textsafe

import (
	"strings"
	"testing"
)

// Free text is cleaned; what arguments are compared with stays as it is, to the digit.
func TestCleanSchema(t *testing.T) {
	const hidden = "\u200b"
	for schema, want := range map[string]string{ // H is hidden
		`{"title":"Ha","description":"bH"}`:                  `{"title":"a","description":"b"}`,
		`{"description":"a\u001b[31mb","enum":["é"]}`:        `{"description":"ab","enum":["é"]}`,
		`{"items":{"$comment":"aH"},"minimum":1.50e400}`:     `{"items":{"$comment":"a"},"minimum":1.50e400}`,
		`{"anyOf":[{"title":"éH"},{}],"const":null}`:         `{"anyOf":[{"title":"é"},{}],"const":null}`,
		`{"properties":{"title":{"title":"aH","not":true}}}`: `{"properties":{"title":{"title":"a","not":true}}}`,
		`{"properties":{"Name":{},"name":{},"größe":{},"x_o":{},"x_0":{}}}`: `{"properties":{"Name":{},"name":{},` +
			`"größe":{},"x_o":{},"x_0":{}}}`,
	} {
		got, err := CleanSchema([]byte(strings.ReplaceAll(schema, "H", hidden)))
		if err != nil || string(got) != want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", schema, got, err, want)
		}
	}
	for schema, what := range map[string]string{
		`{"enum":["a","b` + hidden + `"]}`:                               "a value of enum ",
		`{"const":{"title":"` + hidden + `"}}`:                           "a value of const ",
		`{"properties":{"default":{"default":"` + hidden + `"}}}`:        "a value of default ",
		`{"pattern":"` + hidden + `"}`:                                   "a value of pattern ",
		`{"properties":{"to` + hidden + `":{}}}`:                         "the name ",
		`{"properties":{"a\nb":{"description":"é"}}}`:                    "the name ",
		`{"description":["` + hidden + `"]}`:                             "a value of description ",
		`{"$defs":{"a":{"examples":[{"description":"` + hidden + `"}]}}`: "a value of examples ",
		`{"enum":["a\r"]}`:                                               "a value of enum ",
		`{"properties":{"path":{},"p\u0430th":{}}}`:                      `the name "pаth" looks like the name "path"`,
		`{"properties":{"p\u0430th":{},"path":{}}}`:                      `the name "path" looks like the name "pаth"`,
		`{"$defs":{"a":{"properties":{"ехес":{},"exec":{}}}}}`:           `the name "exec" looks like the name "ехес"`,
		`{"title":"é",`:  "not valid JSON",
		`{"title":"é"`:   "",
		`{"enum":["é"`:   "",
		`{"title":"é",}`: "not valid JSON",
	} {
		if got, err := CleanSchema([]byte(schema)); err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("%s: %s, %v", schema, got, err)
		}
	}
}

// A word that mixes scripts is meant to be taken for another; scripts that are written together are not mixed.
func TestOneScript(t *testing.T) {
	for word, want := range map[string]bool{
		"": true, "2": true, "pay2": true, "größe": true, "погода": true, "天気を見る": true, "get天気": true, "날씨": true,
		"注音ㄅ": true, "नमस्ते": true, "pаypal": false, "get_погода": false, "αβc": false, "天気погода": false,
		"날씨を": false, "погодаα": false, "\U000e0fff": false,
	} {
		if OneScript(word) != want {
			t.Errorf("%q: %v", word, !want)
		}
	}
}
