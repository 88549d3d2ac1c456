package policy_test

import (
	"os"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// TestExample checks that the file can be used, and that it says what its rules mean to.
func TestExample(t *testing.T) {
	text, err := os.ReadFile("policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.New(policy.Options{File: text})
	if err != nil {
		t.Fatal(err)
	}
	guest := auth.Identity{Tenant: "default", User: "guest-1", Roles: auth.RoleCaller}
	ada := auth.Identity{Tenant: "default", User: "ada", Roles: auth.RoleCaller}
	hall := auth.Identity{Tenant: "default", User: "hall", Roles: auth.RoleDevice}
	for _, tt := range []struct {
		who     auth.Identity
		tool    string
		in      policy.Context
		rule    string // that denies; empty: allowed
		demands int    // of the file, and default:outside for all that is allowed
	}{
		{guest, "weather", policy.Main, "", 1},
		{guest, "send_mail", policy.Main, "", 3},
		{guest, "door_open", policy.Main, "guests", 0},
		{ada, "door_open", policy.Main, "", 3},
		{ada, "camera_snap", policy.Main, "", 1},
		{ada, "camera_snap", policy.Group, "no-cameras-in-groups", 0},
	} {
		d := p.Decide(policy.Question{Who: tt.who, Tool: registry.ToolSpec{Name: tt.tool}, Context: tt.in})
		if d.Rule != tt.rule || d.Allowed != (tt.rule == "") || len(d.Approvals) != tt.demands {
			t.Errorf("%s for %s: %+v", tt.tool, tt.who.User, d)
		}
	}
	if p.MayRegister(hall, "camera_snap").Rule != "hall-tablet" || !p.MayRegister(hall, "show_photo").Allowed ||
		p.MayRegister(ada, "BASH").Rule != "no-shells" {
		t.Error("who may register what")
	}
}
