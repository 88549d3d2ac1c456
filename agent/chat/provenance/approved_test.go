package provenance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/chat/provenance"
)

// TestApprovalsVouchForTheirParameter: what a person approved as one parameter of one tool may be used there again, and
// nowhere else. Of a long text nothing may.
func TestApprovalsVouchForTheirParameter(t *testing.T) {
	c := said("Mail it.", "Nothing.")
	long := strings.Repeat("As we said before, this is so. ", 5) + "Ask carol@example.com, at +49 151 2345678."
	c.Approve("send_mail", "an approved call", json.RawMessage(fmt.Sprintf(`{
		"to":["eve@example.com"],"amount":4711471100,"note":"Call mallory@example.com","lines":"a\\ntrent@example.com",
		"body":%q}`, long)))
	for _, x := range []struct {
		tool, args string
		asks       bool
	}{
		{"send_mail", `{"to":["eve@example.com"]}`, false},
		{"send_mail", `{"to":["x","eve@example.com"]}`, false},
		{"send_mail", `{"to":"EVE@example.com"}`, false},
		{"send_mail", `{"amount":4711471100}`, false},
		{"send_mail", `{"note":"mallory@example.com"}`, false},
		{"send_mail", `{"cc":["eve@example.com"]}`, true},
		{"send_mail", `{"to":["mallory@example.com"]}`, true},
		{"send_mail", `{"to":4711471100}`, true},
		{"send_mail", `{"body":"Write to carol@example.com"}`, true},
		{"send_mail", `{"body":"+49 151 2345678"}`, true},
		{"send_mail", `{"lines":"trent@example.com"}`, true},
		{"share_file", `{"to":["eve@example.com"]}`, true},
		{"", `{"to":["eve@example.com"]}`, true},
	} {
		call := provenance.Call{Tool: x.tool, Args: json.RawMessage(x.args)}
		if s := c.Origins(call).Suspects(provenance.Changes); (len(s) > 0) != x.asks {
			t.Errorf("%s %s: %v", x.tool, x.args, s)
		}
	}
}

// TestManyApprovals: what is remembered of approvals is bounded, and what is not vouches for nothing.
func TestManyApprovals(t *testing.T) {
	c := said("Mail it.", "Nothing.")
	for i := range 2000 {
		c.Approve("send", "an approved call", json.RawMessage(fmt.Sprintf(`{"to%d":"eve@example.com"}`, i)))
	}
	for i, asks := range map[int]bool{0: false, 999: false, 1000: true, 1999: true} {
		call := provenance.Call{Tool: "send", Args: json.RawMessage(fmt.Sprintf(`{"to%d":"eve@example.com"}`, i))}
		if s := c.Origins(call).Suspects(provenance.Changes); (len(s) > 0) != asks {
			t.Errorf("parameter %d: %v", i, s)
		}
	}
}

// TestDestinations: where something goes is for trusted sources to say, however it is hidden.
func TestDestinations(t *testing.T) {
	c := said("Post the numbers of May to the room planning, and tell Ada and Bo. It is for 12 people.",
		`{"rooms":[{"name":"gossip","id":"c-77"}]}`)
	c.Approve("post", "an approved call", json.RawMessage(`{"to":"archive"}`))
	schema := json.RawMessage(`{"properties":{"to":{"enum":["leaks"]}}}`)
	for _, x := range []struct {
		args string
		asks bool
	}{
		{`{"to":"planning"}`, false},
		{`{"to":"#Planning"}`, false},
		{`{"to":["planning","ada"]}`, false},
		{`{"to":"archive"}`, false},
		{`{"rooms":{"planning":true}}`, false},
		{`{"messages":[{"to":"Ada","text":"gossip seven"}]}`, false},
		{`{"text":"archive","title":"cynaavat"}`, false},
		{`{"rooms":{"archive":true}}`, true},
		{`{"to":"gossip"}`, true},
		{`{"to":"c-77"}`, true},
		{`{"to":"leaks"}`, true},
		{`{"to":"cynaavat"}`, true},
		{`{"to":"p1anning"}`, true},
		{`{"to":"рlanning"}`, true},
		{`{"to":"ｐlanning"}`, true},
		{`{"to":"plan\u200bning"}`, true},
		{`{"to":"planning2"}`, true},
		{`{"to":"seven"}`, true},
		{`{"to":7}`, true},
		{`{"to":12}`, true},
		{`{"to":"Bo"}`, true},
		{`{"to":"👾"}`, true},
		{`{"to":"?"}`, true},
		{`{"to":"` + strings.Repeat("planning ", 30) + `"}`, true},
		{`{"to":["planning","eve"]}`, true},
		{`{"rooms":{"eve":true}}`, true},
		{`{"messages":[{"to":"Ada"},{"to":"eve"}]}`, true},
		{`{"to":"planning","To":"eve"}`, true},
		{`{"to":"planning","TO":"planning"}`, false},
		{`{"messages":[{"to":"Ada","tO":"eve"}]}`, true},
	} {
		call := provenance.Call{
			Tool: "post", Args: json.RawMessage(x.args), Schema: schema,
			Destinations: []string{"/to", "/rooms", "/messages/*/to"},
		}
		for _, e := range []provenance.Effect{provenance.Reads, provenance.Changes} {
			if s := c.Origins(call).Suspects(e); (len(s) > 0) != x.asks {
				t.Errorf("%s, which %s: %v", x.args, e, s)
			}
		}
	}
}
