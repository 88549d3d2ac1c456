package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestApprovalsShowWhatIsHidden(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	long := strings.Repeat("a", 30_000) + "rm -rf /"
	for args, want := range map[string]struct {
		text   []string
		remark []string
	}{
		`{"to":"\u202egpj.exe"}`:         {[]string{`\u202egpj.exe`}, []string{"hidden", "foreign"}},
		"{\"to\":\"\u202egpj.exe\"}":     {[]string{`\u202egpj.exe`}, []string{"hidden", "foreign"}},
		"{\"to\":\"a\u200bb\"}":          {[]string{`a\u200bb`}, []string{"hidden"}},
		"{\"to\":\"p\u0430ypal\"}":       {[]string{"p\u0430ypal"}, []string{"foreign"}},
		`{"script":"ls\nrm -rf /"}`:      {[]string{`ls\nrm -rf /`}, []string{"multiline"}},
		`{"script":"` + long + `"}`:      {[]string{"rm -rf /"}, []string{"long"}},
		`{"a":"<script>&","b":"\u001b"}`: {[]string{"<script>&", `\u001b`}, []string{"hidden"}},
	} {
		ended := f.call("agent", snap, `{"args":`+args+`}`, 0)
		id := f.waiting("ann", 1)[0].ID
		a := decode[shownApproval](f.as("ann", request{path: "/api/approvals/" + id}), 200)
		for _, text := range want.text {
			if !strings.Contains(a.ArgsText, text) {
				t.Errorf("%.60s: shown as %.80q", args, a.ArgsText)
			}
		}
		for _, remark := range want.remark {
			if !slices.Contains(a.Remarks, remark) {
				t.Errorf("%.60s: remarks %v", args, a.Remarks)
			}
		}
		for _, r := range a.ArgsText {
			if r == '\u202e' || r == '\u200b' || r == 0x1b {
				t.Errorf("%.60s: %U is not escaped", args, r)
			}
		}
		decode[shownApproval](f.decide("ann", id, deny, 0), 200)
		<-ended
	}
	tooLong := fmt.Sprintf(`{"args":{"text":%q}}`, strings.Repeat("a", registry.MaxApprovalArgs))
	wantProblem(<-f.call("agent", snap, tooLong, 0), 413, registry.CodePayloadTooLarge)
}

func TestListingsSayWhatNeedsApproval(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"), tool("echo", "says it"))
	for who, want := range map[string]string{"agent": "required", "ann": ""} {
		rows := decode[struct {
			Tools []struct {
				Name, Approval string
				Enabled        bool
			}
		}](f.as(who, request{path: "/api/tools"}), 200).Tools
		if len(rows) != 2 || rows[0].Approval != want || !rows[0].Enabled || rows[1].Approval != "" {
			t.Errorf("%s: %+v", who, rows)
		}
	}
}

// The feed says that somebody is asked, and what was decided, never about what.
func TestApprovalsInTheFeed(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	feed := f.follow(0, "/api/events?type=approval.requested&type=approval.decided", "")
	ended := f.call("agent", snap, `{"args":{"pin":"4711-hunter2"}}`, 0)
	first := feed.next()
	var e struct {
		Type     string
		Approval shownApproval
	}
	f.must(json.Unmarshal(first.data, &e))
	if e.Type != "approval.requested" || e.Approval.State != "pending" ||
		strings.Contains(string(first.data), "hunter2") {
		t.Fatalf("event %s", first.data)
	}
	decode[shownApproval](f.decide("ann", e.Approval.ID, deny, 0), 200)
	last := feed.next()
	f.must(json.Unmarshal(last.data, &e))
	if e.Type != "approval.decided" || e.Approval.State != "denied" || e.Approval.DecidedBy != "ann" {
		t.Fatalf("event %s", last.data)
	}
	<-ended
}

// TestApprovalEventsAreTheOwners: another user hears nothing of who is asked, over whatever pod; whoever is asked, asks
// or may decide for everybody does.
func TestApprovalEventsAreTheOwners(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	bens := session("bens")
	bens.UserID = "ben"
	f.connect(0, bens, echo, confirmable("camera_snap"))
	const path = "/api/events?type=approval.requested&type=approval.decided"
	sees := map[string]*following{}
	for _, who := range []string{"ann", "agent", "ben", "acme", token} {
		sees[who] = f.followBy(1, who, path, "")
	}
	var ids []string
	for range 2 { // whoever heard of another's would hear of it between two of their own
		for _, c := range []struct{ who, session, decider string }{{"agent", "phone", "ann"}, {"bot", "bens", "ben"}} {
			ended := f.call(c.who, "/api/sessions/"+c.session+"/tools/camera_snap/call", `{}`, 0)
			a := f.waiting(c.decider, 1)[0]
			decode[shownApproval](f.decide(c.decider, a.ID, deny, 0), 200)
			<-ended
			ids = append(ids, a.ID)
		}
	}
	anns := []string{ids[0], ids[2]}
	for who, want := range map[string][]string{"ann": anns, "agent": anns, "ben": {ids[1], ids[3]}, token: ids} {
		for _, id := range want {
			for _, kind := range []string{"approval.requested", "approval.decided"} {
				e := sees[who].next()
				if e.kind != kind || !strings.Contains(string(e.data), id) {
					t.Errorf("%s hears %s %s, want %s of %s", who, e.kind, e.data, kind, id)
				}
			}
		}
	}
	if left := len(sees["acme"].events); left > 0 {
		t.Errorf("another tenant hears %d events", left)
	}
}
