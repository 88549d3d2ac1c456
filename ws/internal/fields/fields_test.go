package fields

import (
	"strings"
	"testing"
)

// Every type of member is read, or its mistake is named.
func TestMembersOfWrongTypes(t *testing.T) {
	const object = `{"text":"a\u00e9","texts":["a",7],"number":0.5,"whole":7,"yes":true,"data":"AAEC","line":"AA\nEC",` +
		`"none":null,"object":{"a":1},"huge":1e999}`
	for name, tt := range map[string]struct {
		read func(o *Object)
		want string
	}{
		"text":         {func(o *Object) { o.Text("text") }, ""},
		"no text":      {func(o *Object) { o.Text("whole") }, "whole: must be a string"},
		"missing":      {func(o *Object) { o.Text("none") }, "none: is required"},
		"optional":     {func(o *Object) { o.TextOr("none", "x"); o.OptionalTexts("none"); o.OptionalBool("no") }, ""},
		"bool":         {func(o *Object) { o.OptionalBool("yes") }, ""},
		"no bool":      {func(o *Object) { o.OptionalBool("text") }, "text: must be true or false"},
		"whole":        {func(o *Object) { o.OptionalInt("whole") }, ""},
		"no whole":     {func(o *Object) { o.OptionalInt("number") }, "number: must be a whole number"},
		"number":       {func(o *Object) { o.OptionalNumber("number") }, ""},
		"huge":         {func(o *Object) { o.OptionalNumber("huge") }, "huge: must be a finite number"},
		"texts":        {func(o *Object) { o.Texts("texts") }, "texts[1]: must be a string"},
		"no array":     {func(o *Object) { o.OptionalTexts("text") }, "text: must be an array"},
		"data":         {func(o *Object) { o.Data("data", 3) }, ""},
		"long data":    {func(o *Object) { o.Data("data", 2) }, "data: is too long: the parts"},
		"longer data":  {func(o *Object) { o.Data("data", 0) }, "data: is too long: the parts"},
		"broken data":  {func(o *Object) { o.Data("line", 9) }, "line: must be a string in base64"},
		"no data":      {func(o *Object) { o.Data("object", 9) }, "object: must be a string in base64"},
		"the first":    {func(o *Object) { o.Text("whole"); o.Text("none") }, "whole: must be a string"},
		"inner object": {func(o *Object) { inner, _ := o.Inner("object", ""); inner.Text("a") }, "a: must be a string"},
	} {
		var bad *Error
		o, mistake := Open([]byte(object), "", &bad)
		if mistake != "" {
			t.Fatal(mistake)
		}
		tt.read(o)
		switch got := o.Bad(); {
		case got == nil && tt.want != "":
			t.Errorf("%s: no mistake, want %s", name, tt.want)
		case got != nil && (tt.want == "" || !strings.HasPrefix(got.Message, tt.want)):
			t.Errorf("%s: %v, want %q", name, got, tt.want)
		}
	}
}

// What is no object, or no whole message, is named.
func TestMessagesThatAreNone(t *testing.T) {
	for message, want := range map[string]string{
		`{"a":1,"b":{"c":2}}`: "", `{"a":1,"a":2}`: `the field "a" appears twice`, `7`: "must be a JSON object",
		`{"a":1,"A":2}`: `the field "A" appears twice`, `{"a":`: "is not valid JSON",
		`{"a":"\ud800"}`: "", strings.Repeat(`{"a":`, MaxDepth+1): "nests deeper than 64 levels",
		"{\"\xff\":1}": "UTF-8",
	} {
		_, err := Message(nil, []byte(message))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", message, err, want)
		}
	}
	if _, mistake := Open(nil, "is required", nil); mistake != "is required" {
		t.Errorf("an absent object: %q", mistake)
	}
	if got := string(Member([]byte(`{"a":{"b":"c"}}`), "a")); got != `{"b":"c"}` || Member(nil, "a") != nil {
		t.Errorf("a member: %s", got)
	}
}

// Members that were not read are told, with those of inner objects.
func TestUnreadMembers(t *testing.T) {
	var bad *Error
	members, _, _ := Split(nil, []byte(`{"a":1,"b":2,"c":{"d":3}}`))
	o := Recording(members, &bad)
	o.Value("a")
	o.Value("c")
	o.Ignore("c.d")
	if got := strings.Join(o.Unread(), " "); got != "b c.d" {
		t.Errorf("unread: %s", got)
	}
	if got := Quote(strings.Repeat("é", MaxEcho)); len(got) != MaxEcho+len(`"…"`) {
		t.Errorf("a long text is quoted as %s", got)
	}
}
