package farhand

import (
	"fmt"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/tools"
	"github.com/farhand/farhand/registry"
)

// openPolicy returns who may do what: as the policy file has it, if there is one.
func (g *Gateway) openPolicy() (*policy.Policy, error) {
	o := policy.Options{Lists: g.cfg.policyRules(), Unconfirmed: g.cfg.Unconfirmed}
	if g.cfg.PolicyFile == "" {
		return policy.New(o)
	}
	rules, file, err := policy.Open(g.cfg.PolicyFile, o, policy.DefaultInterval, g.log)
	if err != nil {
		return nil, fmt.Errorf("FARHAND_POLICY_FILE: %w", err)
	}
	g.policyFile = file
	file.NoteWith(g.notePolicy)
	return rules, nil
}

// notePolicy notes in the audit log of the default tenant, whose admins are the operators, that the policy was
// replaced, or not.
func (g *Gateway) notePolicy(digest string, err error) {
	e := registry.AuditEntry{Tenant: registry.DefaultTenant, Action: registry.AuditPolicyReload, Target: digest}
	if err != nil {
		err = registry.Errorf(registry.CodeInvalidRequest, "%s", err)
	}
	e.Decide(err)
	g.audit.Note(e)
}

// warnings returns what an operator should look at although the pod serves.
func (g *Gateway) warnings() []string {
	if g.policyFile != nil && g.policyFile.Status().Err != nil {
		return []string{"policy_file_refused"}
	}
	return nil
}

// ownNames returns the names that are the gateway's own, also those of built-in tools that are not enabled: what a
// model knows as one of them must not be a device's.
func (g *Gateway) ownNames(enabled *agent.LocalTools) []string {
	return append(enabled.Names(), tools.Names()...)
}

// checkPolicyFile reports what is wrong with a policy file.
func checkPolicyFile(path string) (ok bool, variable, message string) {
	text, err := policy.ReadFile(path)
	if err == nil {
		err = policy.Check(text)
	}
	if err != nil {
		return false, "POLICY_FILE", fmt.Sprintf("%s: %v", path, err)
	}
	return true, "", ""
}
