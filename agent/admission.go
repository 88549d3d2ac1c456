package agent

import "github.com/farhand/farhand/registry"

// DefaultMaxTools is how many tools one session may offer.
const DefaultMaxTools = 128

// Admission decides which tools a device may register. It is safe for concurrent use.
type Admission struct {
	policy   *Policy
	schemas  *Schemas
	maxTools int
}

// NewAdmission returns an Admission. maxTools is per session; zero means DefaultMaxTools.
func NewAdmission(policy *Policy, schemas *Schemas, maxTools int) *Admission {
	if maxTools <= 0 {
		maxTools = DefaultMaxTools
	}
	return &Admission{policy: policy, schemas: schemas, maxTools: maxTools}
}

// Admit checks one definition for a session that offers `offered` tools without it. It returns the definition in
// canonical form, or an *registry.Error whose message is the reason for the device.
func (a *Admission) Admit(spec registry.ToolSpec, offered int) (registry.ToolSpec, error) {
	spec, err := spec.Normalize()
	if err != nil {
		return spec, err
	}
	if !a.policy.MayRegister(spec.Name) {
		return spec, registry.Errorf(registry.CodePolicyDenied, "this gateway does not allow devices to register this name")
	}
	if offered >= a.maxTools {
		return spec, registry.Errorf(registry.CodeInvalidRequest, "a session may offer at most %d tools", a.maxTools)
	}
	return spec, a.schemas.Compile(spec)
}
