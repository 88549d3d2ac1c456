package farhand_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand"
)

// heating are arguments with every tag.
type heating struct {
	Room  string   `json:"room"`
	Unit  string   `json:"unit" enum:"celsius,fahrenheit" default:"celsius"`
	Grade *float64 `json:"grade,omitempty" minimum:"5" maximum:"30.5"`
	Days  []string `json:"days,omitempty" enum:"sat,sun" default:"[\"sat\"]"`
	Step  int      `json:"step,omitempty" enum:"1,2,5"`
	Rules []struct {
		From uint8 `json:"from" maximum:"23" default:"6"`
	} `json:"rules,omitempty"`
}

func TestTagsOfArguments(t *testing.T) {
	url := start(t, farhand.Config{}, farhand.WithToolFunc("heat", "Heats.",
		func(_ context.Context, h heating) (any, error) { return h, nil }))
	for args, want := range map[string]string{
		`{"room":"hall"}`: `{"room":"hall","unit":"celsius","days":["sat"]}`,
		`{"room":"hall","unit":"fahrenheit","days":[],"grade":30.5,"step":5,"rules":[{"from":23},{}]}`: `{"room":"hall",` +
			`"unit":"fahrenheit","grade":30.5,"step":5,"rules":[{"from":23},{"from":6}]}`,
		`{"room":"hall","grade":null,"days":null}`: `{"room":"hall","unit":"celsius"}`,
		`{}`:                                    "",
		`{"room":"hall","unit":"kelvin"}`:       "/unit",
		`{"room":"hall","unit":null}`:           "/unit",
		`{"room":"hall","grade":4.9}`:           "/grade",
		`{"room":"hall","grade":31}`:            "/grade",
		`{"room":"hall","days":["mon"]}`:        "/days/0",
		`{"room":"hall","step":3}`:              "/step",
		`{"room":"hall","rules":[{"from":24}]}`: "/rules/0/from",
	} {
		_, body := send(t, url+"/api/tools/heat/call", `{"args":`+args+`}`, "")
		var got struct {
			Code, Output string
			Errors       []struct{ Pointer string }
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		refused := got.Code == "invalid_arguments" && len(got.Errors) == 1 && got.Errors[0].Pointer == want
		if got.Output != want && !refused {
			t.Errorf("%s: %s, want %s", args, body, want)
		}
	}
}

func TestTagsAreInTheSchema(t *testing.T) {
	schema, err := farhand.SchemaOf[heating]()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"object","properties":{"room":{"type":"string"},` +
		`"unit":{"type":"string","default":"celsius","enum":["celsius","fahrenheit"]},` +
		`"grade":{"type":["null","number"],"minimum":5,"maximum":30.5},` +
		`"days":{"type":["null","array"],"items":{"type":"string","enum":["sat","sun"]},"default":["sat"]},` +
		`"step":{"type":"integer","enum":[1,2,5]},` +
		`"rules":{"type":["null","array"],"items":{"type":"object","properties":{` +
		`"from":{"type":"integer","default":6,"minimum":0,"maximum":23}},"additionalProperties":false}}},` +
		`"required":["room"],"additionalProperties":false}`
	if string(schema) != want {
		t.Errorf("the schema is\n%s\nwant\n%s", schema, want)
	}
}

func TestTagsThatCannotHold(t *testing.T) {
	for name, c := range map[string]struct {
		schema func() (json.RawMessage, error)
		says   string
	}{
		"a default outside of enum": {farhand.SchemaOf[struct {
			A string `enum:"x,y" default:"z"`
		}], "enum"},
		"a default outside of the range": {farhand.SchemaOf[struct {
			A int `minimum:"1" default:"0"`
		}], "minimum"},
		"a default of another type": {farhand.SchemaOf[struct {
			A bool `default:"\"yes\""`
		}], "bool"},
		"a maximum beyond the type's": {farhand.SchemaOf[struct {
			A uint8 `maximum:"999"`
		}], "255"},
		"a minimum beyond the type's, of a list": {farhand.SchemaOf[struct {
			A []int8 `minimum:"-129"`
		}], "-128"},
		"a default that the type cannot hold": {farhand.SchemaOf[struct {
			A time.Time `default:"tomorrow"`
		}], "tomorrow"},
		"a default that is not JSON": {farhand.SchemaOf[struct {
			A int `default:"one"`
		}], "not JSON"},
		"values that are not JSON": {farhand.SchemaOf[struct {
			A int `enum:"1,two"`
		}], "not JSON"},
		"values of an object": {farhand.SchemaOf[struct {
			A struct{} `enum:"1"`
		}], "enum"},
		"a range of a text": {farhand.SchemaOf[struct {
			A string `minimum:"1"`
		}], "number"},
		"a range without numbers": {farhand.SchemaOf[struct {
			A int `maximum:"many"`
		}], "number"},
		"an empty range, deep inside": {farhand.SchemaOf[struct {
			A map[string][]*struct {
				B int `minimum:"2" maximum:"1"`
			}
		}], "the field B"},
	} {
		if _, err := c.schema(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
