package api

import (
	"testing"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// TestWrongFieldsAreNamed: a body of the wrong form is answered with its field, and with what that must be.
func TestWrongFieldsAreNamed(t *testing.T) {
	key := func(body string) error {
		_, err := parseKeyRequest([]byte(body))
		return err
	}
	tools := func(body string) error {
		_, err := readRequest[wire.ToolDecision]([]byte(body),
			map[string]string{"approve": "a list", "reject": "a list"})
		return err
	}
	for _, c := range []struct {
		read       func(string) error
		body, want string
	}{
		{key, `{"name":"ci","roles":["caller"],"person":true,"expires_in":60}`, ""},
		{key, `{"name":7}`, `The field "name" must be a string.`},
		{key, `{"name":null}`, `The field "name" must be a string.`},
		{key, `{"name":""}`, `The field "name" must not be empty. Leave it out instead.`},
		{key, `{"roles":[1]}`, `The field "roles" must be a short list of names.`},
		{key, `{"expires_in":null}`, `The field "expires_in" must be a number of seconds.`},
		{key, `{"Name":"ci"}`, `The field "Name" must be spelled "name".`},
		{key, `[]`, `The body must be a JSON object.`},
		{tools, `{"approve":[{"Name":"a","hash":"b","more":1}],"reject":null}`, ""},
		{tools, `{"approve":[{"name":1}]}`, `The field "approve" must be a list.`},
		{tools, `{"refuse":[]}`, `The field "refuse" is unknown. Known fields: approve, reject.`},
	} {
		got := ""
		if err := c.read(c.body); err != nil {
			got = registry.AsError(err).Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}
