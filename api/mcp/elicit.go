package mcp

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Approvals reads and decides approvals. *approval.Service implements it. For an approval that the identity may not
// see, it fails with registry.CodeNotFound.
type Approvals interface {
	Wait(ctx context.Context, who auth.Identity, id string, wait time.Duration) (registry.Approval, error)
	Decide(ctx context.Context, who auth.Identity, id string, d approval.Decision) (approval.Answer, error)
	Withdraw(ctx context.Context, tenant, id string)
	CountWrongAnswer(ctx context.Context, tenant, id string) (int, error)
}

// States stores values that clients must send back unchanged. Each can be taken once. registry.PairingStore implements
// it.
type States interface {
	PutNonce(ctx context.Context, tenant, owner, nonce string, life time.Duration) error
	TakeNonce(ctx context.Context, tenant, owner, nonce string) (bool, error)
}

const (
	kindInput = "input_required" // of a result

	// keyApproval names the question in inputRequests, and its answer in inputResponses.
	keyApproval = "approval"

	// stateLife is how long a client may take to resume a call. No approval waits longer.
	stateLife = time.Hour

	maxState   = 4 << 10 // bytes of requestState
	maxInputs  = 8 << 10 // bytes of inputResponses
	maxAnswers = 3       // to one question; if the last is wrong, the call is cancelled

	maxShown = 4 << 10 // bytes of arguments shown to a client's user; longer calls are decided elsewhere
)

// errState is one error for every defect of a requestState, so that it does not reveal which part was right.
var errState = &rpcError{code: codeInvalidParams, message: "This requestState is not valid for this call: it was " +
	"used, has expired, or belongs to another call or caller. Call the tool again without it."}

// asksUser reports whether the client can show a form to its user.
func (r *request) asksUser() bool {
	elicitation, ok := r.capability("elicitation")
	return ok && (len(elicitation) == 0 || elicitation.get("form").IsObject())
}

// capability returns the settings of one of the client's capabilities, if the client has it.
func (r *request) capability(name string) (says fields, ok bool) {
	if !r.modern {
		return nil, false
	}
	all, _ := membersOf(r.capabilities)
	v := all.get(name)
	says, _ = membersOf(v)
	return says, v.IsObject()
}

// resume sets up a request that continues a suspended call, if the client sends its user's answer. Otherwise, if the
// client can show a form, the call is suspended when it needs approval.
func (s *Server) resume(ctx context.Context, r *request, req *agent.Request) error {
	if s.cfg.States == nil || !r.modern || req.Async || req.IdempotencyKey != "" {
		return nil
	}
	v := r.params.get("requestState")
	if v.IsZero() {
		req.Suspend = r.asksUser()
		return nil
	}
	inputs, err := r.inputs()
	if err != nil {
		return err
	}
	state, ok := r.params.text("requestState")
	if !ok || len(state) > maxState || req.Args.Len() > registry.MaxApprovalArgs {
		return errState
	}
	asked, err := s.takeState(ctx, r, req, state)
	if err != nil {
		return err
	}
	req.Resume, req.CallID = &asked.Call, asked.Call.CallID
	return s.answered(ctx, r, req, inputs.get(keyApproval))
}

func (r *request) inputs() (fields, error) {
	v := r.params.get("inputResponses")
	if v.Len() > maxInputs {
		return nil, invalidParams("The field \"inputResponses\" is longer than %d bytes.", maxInputs)
	}
	inputs, err := membersOf(v)
	switch {
	case err != nil:
		return nil, invalidParams("The field \"inputResponses\" must be a JSON object.")
	case slices.ContainsFunc(inputs, func(m strictjson.Member) bool { return !m.Checked().IsObject() }):
		return nil, invalidParams("Each of \"inputResponses\" must be a JSON object.")
	}
	return inputs, nil
}

// answered applies the answer of the client's user. A decision is recorded only if this user may decide the approval.
// From any other user, accepting means waiting for an approver, and declining withdraws the approval, which cancels the
// call. Without an answer, the question is sent again.
func (s *Server) answered(ctx context.Context, r *request, req *agent.Request, answer strictjson.Value) error {
	if answer.IsZero() {
		req.Suspend = true
		return nil
	}
	decision, wrong := readAnswer(answer)
	id := req.Resume.ApprovalID
	switch decides := s.mayDecide(ctx, r, id); {
	case wrong == noDecision && !decides: // accepted without a decision: the call waits
		return nil
	case wrong != "":
		err := s.countWrong(ctx, r, id, wrong)
		req.Suspend = r.wrongAnswers > 0 && r.wrongAnswers < maxAnswers
		return err
	case !decides && !decision.Allow:
		s.cfg.Approvals.Withdraw(ctx, r.Caller.Tenant, id) // so the call does not run
		return nil
	case !decides:
		return nil
	}
	return s.decide(ctx, r, id, decision)
}

// decide records a decision. An approval that is gone is no error.
func (s *Server) decide(ctx context.Context, r *request, id string, d approval.Decision) error {
	_, err := s.cfg.Approvals.Decide(ctx, r.Caller, id, d)
	if errors.Is(err, registry.CodeNotFound) {
		return nil
	}
	return err
}

// countWrong counts a wrong answer to a question. The count is the same on every pod. The last allowed answer, if
// wrong, withdraws the question, which cancels the call.
func (s *Server) countWrong(ctx context.Context, r *request, id, wrong string) (err error) {
	r.wrong = wrong
	r.wrongAnswers, err = s.cfg.Approvals.CountWrongAnswer(ctx, r.Caller.Tenant, id)
	if r.wrongAnswers >= maxAnswers {
		s.cfg.Approvals.Withdraw(ctx, r.Caller.Tenant, id)
	}
	return err
}

// givenUp returns err, with the reason if the call was cancelled after too many wrong answers.
func (r *request) givenUp(err error) error {
	if err == nil || r.wrongAnswers < maxAnswers {
		return err
	}
	e := *registry.AsError(err)
	e.Message = r.lastWrong()
	return &e
}

func (r *request) lastWrong() string {
	return fmt.Sprintf("None of %d answers was a decision: %s The call is cancelled.", maxAnswers, r.wrong)
}

// Reasons why an answer is invalid, for the user and the client.
const (
	noDecision = `"decision" must be "allow" or "deny".`
	noAction   = `"action" must be "accept", "decline" or "cancel".`
)

// readAnswer reads a user's answer. wrong says why it is not a decision: noDecision if the user accepted without one.
func readAnswer(answer strictjson.Value) (d approval.Decision, wrong string) {
	said, _ := membersOf(answer) // none if it is not an object
	action, _ := said.text("action")
	content, _ := membersOf(said.get("content"))
	word, _ := content.text("decision")
	switch {
	case action == "decline", action == "cancel", action == "accept" && word == "deny":
		return d, ""
	case action != "accept":
		return d, noAction
	case word == "allow":
		return approval.Decision{Allow: true}, ""
	default:
		return d, noDecision
	}
}

// mayDecide reports whether the caller may decide an approval, here or at /api/approvals.
func (s *Server) mayDecide(ctx context.Context, r *request, id string) bool {
	if !r.Caller.Approves() {
		return false
	}
	a, err := s.cfg.Approvals.Wait(ctx, r.Caller, id, 0)
	return err == nil && approval.MayDecide(r.Caller, a)
}

// ask returns the result that asks the client's user about a suspended call.
func (s *Server) ask(ctx context.Context, r *request, req *agent.Request, call *agent.Suspended) (result, error) {
	state, err := s.putState(ctx, r, req, call)
	if err != nil {
		return result{}, err
	}
	question, _ := s.question(ctx, r, call.Approval)
	return result{kind: kindInput, members: encode(map[string]any{
		"inputRequests": map[string]json.RawMessage{keyApproval: question}, "requestState": state,
	})}, nil
}

// question returns the form for the client's user. A user who may decide the approval sees the arguments and chooses.
// Any other user sees where the approval is decided.
func (s *Server) question(ctx context.Context, r *request, a registry.Approval) (form []byte, decides bool) {
	where := ""
	if a.SessionID != "" {
		where = " on session " + a.SessionID
		if a.DeviceName != "" { // in quotes, because a device can choose any name
			where = " on " + strconv.Quote(textsafe.Expose(a.DeviceName)) + where[len(" on"):]
		}
	}
	text := fmt.Sprintf("The call of %q%s needs a person's approval. %s", a.Tool, where, textsafe.Expose(a.Reason))
	if r.wrong != "" {
		text = fmt.Sprintf("Your answer was not a decision: %s (Answer %d of %d.)\n%s",
			r.wrong, r.wrongAnswers+1, maxAnswers, text)
	}
	shown, remarks := approval.Shown(a.Args)
	schema := json.RawMessage(`{"type":"object","properties":{}}`)
	if decides = len(shown) <= maxShown && s.mayDecide(ctx, r, a.ID); decides {
		text += "\nArguments: " + shown
		if len(remarks) > 0 {
			text += "\nWarning: the arguments contain " + strings.Join(remarks, ", ") + "."
		}
		schema = json.RawMessage(`{"type":"object","properties":{"decision":{"type":"string","title":"Decision",` +
			`"description":"Whether this call may run, once.","enum":["allow","deny"]}},"required":["decision"]}`)
	} else {
		who := ""
		if len(a.Approvers) > 0 {
			who = " (" + textsafe.Expose(strings.Join(a.Approvers, ", ")) + ")"
		}
		text += fmt.Sprintf("\nAn approver%s decides: farhand approve show %s, then farhand approve allow %s. "+
			"Accept to wait for the decision; decline to cancel the call.", who, a.ID, a.ID)
	}
	form, _ = json.Marshal(map[string]any{ // cannot fail: strings, and JSON from this function
		"method": "elicitation/create",
		"params": map[string]any{"mode": "form", "message": text, "requestedSchema": schema},
	})
	return form, decides
}

// putState stores and returns a requestState that resumes a call once, for the same call and caller. The store has the
// whole text, so a changed one is not found. Its owner is the digest of call and caller, so no other caller can use it.
func (s *Server) putState(
	ctx context.Context, r *request, req *agent.Request, call *agent.Suspended,
) (state string, err error) {
	owner, err := stateOwner(r, req)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(stateText{rand.Text(), *call})
	if err != nil {
		return "", err
	}
	state = base64.RawURLEncoding.EncodeToString(b)
	return state, s.cfg.States.PutNonce(ctx, r.Caller.Tenant, owner, state, stateLife)
}

// stateText is the content of a requestState. It is not secret.
type stateText struct {
	Once string          `json:"once"` // differs each time
	Call agent.Suspended `json:"state"`
}

// takeState returns the content of a requestState, once. It fails with errState unless putState made it for the same
// call and caller, and it was not used before.
func (s *Server) takeState(
	ctx context.Context, r *request, req *agent.Request, state string,
) (text stateText, err error) {
	owner, err := stateOwner(r, req)
	if err != nil {
		return text, err
	}
	known, err := s.cfg.States.TakeNonce(ctx, r.Caller.Tenant, owner, state)
	if err != nil {
		return text, err
	}
	b, bad := base64.RawURLEncoding.DecodeString(state)
	if !known || bad != nil || json.Unmarshal(b, &text) != nil {
		return stateText{}, errState
	}
	return text, nil
}

// stateOwner returns a digest of the caller, the credential, the tool, the target and the arguments. A JSON Web Token
// changes with each renewal, so its user is used instead.
func stateOwner(r *request, req *agent.Request) (string, error) {
	credential := r.Caller.Credential
	if r.Caller.User != "" && strings.HasPrefix(credential, auth.CredentialJWT+":") {
		credential = auth.CredentialJWT
	}
	who, err := json.Marshal([]any{
		"mcp", r.Caller.User, credential, r.Caller.Device, r.Caller.Tools, req.Tool, req.Target, req.Timeout,
	})
	if err != nil {
		return "", err
	}
	args := req.Args.Raw()
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	digest, err := strictjson.Digest(who, args)
	return "mcp/" + digest, err
}
