// Package pairings keeps pairing requests, the nonces that paired devices sign, and the definitions of their tools, as
// documents of a store. Every store uses it to implement registry.PairingStore.
//
// Requests are in one space of the whole fleet. Each is a document, and so is each code: it has the id of its request,
// and is empty once the request is decided. A counter of wrong codes is a document that expires with its window.
//
// Imports: only registry and registry/documents, of the packages of this module.
package pairings

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
)

// store implements registry.PairingStore.
type store struct{ docs documents.Store }

// New returns a store of pairings on documents.
func New(docs documents.Store) registry.PairingStore { return store{docs} }

// Ids of documents, and indexes of requests: all, and those of a source or a network.
const (
	requestID = "request."
	codeID    = "code."
	wrongID   = "wrong."

	allIndex     = "all"
	sourceIndex  = "source."
	networkIndex = "network."
)

func requests() documents.Space { return documents.Space{Kind: "pairings"} }

// request is a stored request.
type request struct {
	registry.Pairing
	Life     time.Duration             `json:"life"` // until it expires undecided
	Decision *registry.PairingDecision `json:"decision,omitempty"`
}

// docID returns the part of a request's id that names its document. The request of a node has a version after a dot:
// the document is replaced when the node asks for something else.
func docID(id string) string {
	id, _, _ = strings.Cut(id, ".")
	return id
}

func (r request) indexes() []string {
	indexes := []string{allIndex, sourceIndex + r.Source}
	if r.Network != "" {
		indexes = append(indexes, networkIndex+r.Network)
	}
	return indexes
}

// put returns the steps that store a request, its code and its places in the indexes for life.
func (r request) put(code string, life time.Duration) []documents.Step {
	steps := []documents.Step{documents.PutJSON(requestID+docID(r.ID), r, life)}
	if r.CodeDigest != "" {
		steps = append(steps, documents.Put(codeID+r.CodeDigest, []byte(code), life))
	}
	for _, index := range r.indexes() {
		steps = append(steps, documents.Join(index, docID(r.ID), life, 0))
	}
	return steps
}

// pairing returns the request with its times and its decision.
func (r request) pairing(d documents.Document) registry.Pairing {
	p := r.Pairing
	p.CreatedAt, p.ExpiresAt, p.Decision = d.Created, d.Created.Add(r.Life), r.Decision
	return p
}

// limits returns the conditions on the places of requests. The request's own place does not count.
func (r request) limits() []documents.Step {
	own := docID(r.ID)
	all := documents.Term{Index: allIndex, Weight: 1, Except: own}
	steps := []documents.Step{
		documents.AtMost(registry.MaxPairings-1, all),
		documents.AtMost(registry.MaxPairingsOfSource-1,
			documents.Term{Index: sourceIndex + r.Source, Weight: 1, Except: own}),
	}
	if r.Network != "" { // its share of the places that are left
		steps = append(steps, documents.AtMost(registry.MaxPairings-1, all,
			documents.Term{Index: networkIndex + r.Network, Weight: registry.PairingsShare, Except: own}))
	}
	return steps
}

// CreatePairing implements registry.PairingStore.
func (s store) CreatePairing(
	ctx context.Context, p registry.Pairing, ttl time.Duration,
) (registry.Pairing, error) {
	p.CreatedAt, p.ExpiresAt = time.Time{}, time.Time{}
	r := request{Pairing: p, Life: ttl}
	steps := r.limits()
	limits := len(steps)
	if p.CodeDigest != "" {
		steps = append(steps, documents.Expect(codeID+p.CodeDigest, ""))
	}
	done, err := documents.Commit(ctx, s.docs, requests(), append(steps, r.put(p.ID, ttl)...)...)
	switch {
	case err != nil:
		return registry.Pairing{}, err
	case done.Refused > limits:
		return registry.Pairing{}, registry.ErrCodeTaken
	case done.Refused > 0:
		return registry.Pairing{}, registry.ErrPairingsFull
	}
	return r.pairing(documents.Document{Created: done.Now}), nil
}

// Pairing implements registry.PairingStore.
func (s store) Pairing(ctx context.Context, id string) (registry.Pairing, error) {
	found, err := s.docs.Read(ctx, requests().Ref(requestID+docID(id)))
	if err != nil {
		return registry.Pairing{}, err
	}
	r, err := documents.Decode[request](found[0], registry.ErrNoPairing)
	if err == nil && r.ID != id {
		return registry.Pairing{}, registry.ErrNoPairing // a node superseded it
	}
	return r.pairing(found[0]), err
}

// Pairings implements registry.PairingStore.
func (s store) Pairings(ctx context.Context, tenant string) ([]registry.Pairing, error) {
	if tenant == "" {
		return nil, nil
	}
	recent := documents.Query{Space: requests(), Index: allIndex, Limit: registry.MaxPairings}
	found, err := documents.Listed(ctx, s.docs, recent, requestID, "")
	if err != nil {
		return nil, err
	}
	var pending []registry.Pairing
	for _, d := range documents.Existing(found) { // others were collected, or have expired
		r, err := documents.Decode[request](d, nil)
		if err != nil {
			return nil, err
		}
		if r.Tenant == tenant && r.Decision == nil {
			pending = append(pending, r.pairing(d))
		}
	}
	slices.SortFunc(pending, func(a, b registry.Pairing) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return pending, nil
}

// PairingByCode implements registry.PairingStore. A right code is also written on condition that no wrong one was
// counted meanwhile. So callers cannot try more codes at the same time than one after the other.
func (s store) PairingByCode(
	ctx context.Context, codeDigest string, guesses ...registry.Guess,
) (registry.Pairing, error) {
	ids, id := []string{codeID + codeDigest}, ""
	for _, g := range guesses {
		ids = append(ids, wrongID+g.Name)
	}
	try := func(found []documents.Document) ([]documents.Step, error) {
		code, wrong := found[0], found[1:]
		if err := exhausted(guesses, wrong); err != nil {
			return nil, err
		}
		if id = string(code.Data); id != "" {
			return []documents.Step{}, nil
		}
		if code.Exists() {
			return nil, registry.ErrPairingDecided
		}
		steps := []documents.Step{}
		for i, g := range guesses {
			life := time.Duration(0)
			if !wrong[i].Exists() {
				life = g.Window
			}
			steps = append(steps, documents.Put(wrongID+g.Name, []byte(strconv.Itoa(count(wrong[i])+1)), life))
		}
		return steps, nil
	}
	switch err := documents.Change(ctx, s.docs, requests(), ids, try); {
	case err != nil:
		return registry.Pairing{}, err
	case id == "":
		return registry.Pairing{}, registry.ErrNoPairing
	}
	return s.Pairing(ctx, id)
}

// count reads a counter of wrong codes.
func count(d documents.Document) int {
	n, _ := strconv.Atoi(string(d.Data))
	return n
}

// exhausted returns an error if no code may be tried. wrong has the counter of each guess.
func exhausted(guesses []registry.Guess, wrong []documents.Document) error {
	counts, left := make([]int, len(guesses)), make(map[string]time.Duration)
	for i, d := range wrong {
		counts[i], left[guesses[i].Name] = count(d), d.Expires.Sub(d.Now)
	}
	full := registry.FullGuesses(guesses, counts)
	if len(full) == 0 {
		return nil
	}
	wait := time.Millisecond
	for _, g := range full {
		wait = max(wait, left[g.Name])
	}
	return registry.ErrGuesses(wait)
}

// DecidePairing implements registry.PairingStore.
func (s store) DecidePairing(
	ctx context.Context, id string, d registry.PairingDecision, ttl time.Duration,
) (p registry.Pairing, err error) {
	decide := func(r request, stored documents.Document) ([]documents.Step, error) {
		if r.ID != id {
			return nil, registry.ErrNoPairing
		}
		if r.Decision != nil {
			p = r.pairing(stored)
			return nil, registry.ErrPairingDecided
		}
		r.Decision = &d
		p = r.pairing(stored)
		if p.Code != "" {
			r.Life = stored.Now.Sub(stored.Created) + ttl
			p.ExpiresAt = stored.Now.Add(ttl)
		}
		return r.put("", ttl), nil
	}
	err = documents.ChangeOne(ctx, s.docs, requests(), requestID+docID(id), registry.ErrNoPairing, decide)
	return p, err
}

// isReady reports whether a device may collect the request, which must have this id.
func (r request) isReady(id string) bool {
	return r.ID == id && r.Decision != nil && r.Decision.Approved && r.Collected == ""
}

// leave returns the steps that remove the request from the indexes.
func (r request) leave() (steps []documents.Step) {
	for _, index := range r.indexes() {
		steps = append(steps, documents.Leave(index, docID(r.ID)))
	}
	return steps
}

// TakePairing implements registry.PairingStore.
func (s store) TakePairing(ctx context.Context, id string) (p registry.Pairing, err error) {
	take := func(r request, stored documents.Document) ([]documents.Step, error) {
		if !r.isReady(id) {
			return nil, registry.ErrNoPairing
		}
		p = r.pairing(stored)
		return append(r.leave(), documents.Delete(requestID+docID(id))), nil
	}
	err = documents.ChangeOne(ctx, s.docs, requests(), requestID+docID(id), registry.ErrNoPairing, take)
	if err != nil {
		return registry.Pairing{}, err
	}
	return p, nil
}

// nonceIndex is the index of an owner's nonces, and toolsID the document of a device's tools. Each is alone in its
// space.
const (
	nonceIndex = "all"
	toolsID    = "tools"
)

func nonces(tenant, owner string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "nonces", Owner: owner}
}

func deviceTools(tenant, credential string) documents.Space {
	return documents.Space{Tenant: tenant, Kind: "devicetools", Owner: credential}
}

// PutNonce implements registry.PairingStore.
func (s store) PutNonce(ctx context.Context, tenant, owner, nonce string, life time.Duration) error {
	_, err := documents.Commit(ctx, s.docs, nonces(tenant, owner),
		documents.Join(nonceIndex, nonce, life, 0), documents.Keep(nonceIndex, registry.MaxNonces))
	return err
}

// TakeNonce implements registry.PairingStore.
func (s store) TakeNonce(ctx context.Context, tenant, owner, nonce string) (bool, error) {
	done, err := documents.Commit(ctx, s.docs, nonces(tenant, owner),
		documents.Has(nonceIndex, nonce), documents.Leave(nonceIndex, nonce))
	return err == nil && done.Refused == 0, err
}

// SetDeviceTools implements registry.PairingStore.
func (s store) SetDeviceTools(ctx context.Context, tenant, credential string, t registry.DeviceTools) error {
	if t.Size() > registry.MaxDeviceDefinitions {
		return registry.ErrDefinitionsTooLarge
	}
	if err := s.reserveWaiting(ctx, tenant, credential, int64(t.WaitingSize())); err != nil {
		return err
	}
	_, err := documents.Commit(ctx, s.docs, deviceTools(tenant, credential),
		documents.PutJSON(toolsID, t, registry.CredentialIdle))
	return err
}

// reserveWaiting replaces the bytes that a device has of MaxWaitingBytes. A space of the tenant has them as a document
// for each device, and as a member of an index, weighed by them.
func (s store) reserveWaiting(ctx context.Context, tenant, credential string, size int64) error {
	space := documents.Space{Tenant: tenant, Kind: "waitingtools"}
	for range documents.MaxTries {
		found, err := s.docs.Read(ctx, space.Ref(credential))
		if err != nil {
			return err
		}
		var before int64
		if found[0].Exists() {
			if before, err = documents.Decode[int64](found[0], nil); err != nil {
				return err
			}
		}
		if before == 0 && size == 0 {
			return nil
		}
		steps := []documents.Step{
			documents.Expect(credential, found[0].Revision),
			documents.Leave(allIndex, documents.Weighed(before, credential)),
		}
		if size == 0 {
			steps = append(steps, documents.Delete(credential))
		} else {
			steps = append(steps,
				documents.Join(allIndex, documents.Weighed(size, credential), registry.CredentialIdle, 0),
				documents.PutJSON(credential, size, registry.CredentialIdle))
		}
		if size > before { // fewer are always allowed
			steps = append(steps,
				documents.AtMost(registry.MaxWaitingBytes-size+before, documents.Term{Index: allIndex}))
		}
		switch done, err := documents.Commit(ctx, s.docs, space, steps...); {
		case err != nil || done.Refused == 0:
			return err
		case done.Refused > 1:
			return registry.ErrManyWaiting
		}
	}
	return documents.ErrContended
}

// DeviceTools implements registry.PairingStore.
func (s store) DeviceTools(ctx context.Context, tenant, credential string) (t registry.DeviceTools, err error) {
	found, err := s.docs.Read(ctx, deviceTools(tenant, credential).Ref(toolsID))
	if err != nil || !found[0].Exists() {
		return t, err
	}
	t, err = documents.Decode[registry.DeviceTools](found[0], nil)
	for _, list := range [...][]registry.ToolSpec{t.Waiting, t.Pinned} {
		for i := range list {
			list[i] = list[i].Hashed()
		}
	}
	return t, err
}
