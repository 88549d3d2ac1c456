package redisstore

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// CreatePairing implements registry.PairingStore.
func (s *Store) CreatePairing(
	ctx context.Context, p registry.Pairing, ttl time.Duration,
) (registry.Pairing, error) {
	p.CreatedAt, p.ExpiresAt, p.Decision = time.Time{}, time.Time{}, nil
	body, err := json.Marshal(p)
	if err != nil {
		return registry.Pairing{}, registry.AsError(err)
	}
	share := registry.PairingsShare
	if p.Network == "" {
		share = 0
	}
	keys := []string{
		pairingKey(p.ID), pairingCodeKey(p.CodeDigest), pairingsKey, pairingSourceKey(p.Source),
		pairingNetworkKey(p.Network),
	}
	answer, err := s.conn.Eval(ctx, scriptPairingCreate, keys, p.ID, body, millis(ttl), registry.MaxPairings,
		registry.MaxPairingsOfSource, flag(p.CodeDigest != ""), share)
	if err != nil {
		return registry.Pairing{}, redisconn.Unavailable("create pairing", err)
	}
	switch made := answer.Int(); made {
	case -1:
		return registry.Pairing{}, registry.ErrPairingsFull
	case -2:
		return registry.Pairing{}, registry.ErrCodeTaken
	default:
		p.CreatedAt = time.UnixMilli(made).UTC()
		p.ExpiresAt = p.CreatedAt.Add(ttl)
		return p, nil
	}
}

// Pairing implements registry.PairingStore.
func (s *Store) Pairing(ctx context.Context, id string) (registry.Pairing, error) {
	p, _, err := s.readPairing(ctx, id)
	return p, err
}

// readPairing returns a request, and its decision as it is stored.
func (s *Store) readPairing(ctx context.Context, id string) (registry.Pairing, string, error) {
	answer, err := s.conn.Do(ctx, "HGETALL", pairingKey(id))
	if err != nil {
		return registry.Pairing{}, "", redisconn.Unavailable("read pairing", err)
	}
	hash := answer.Map()
	if len(hash) == 0 {
		return registry.Pairing{}, "", registry.ErrNoPairing
	}
	p, err := parsePairing(hash)
	return p, hash["decision"], err
}

func parsePairing(hash map[string]string) (registry.Pairing, error) {
	var p registry.Pairing
	if err := json.Unmarshal([]byte(hash["body"]), &p); err != nil {
		return p, registry.AsError(err)
	}
	created, err := strconv.ParseInt(hash["created"], 10, 64)
	if err != nil {
		return p, registry.AsError(err)
	}
	expires, err := strconv.ParseInt(hash["expires"], 10, 64)
	if err != nil {
		return p, registry.AsError(err)
	}
	p.CreatedAt, p.ExpiresAt = time.UnixMilli(created).UTC(), time.UnixMilli(expires).UTC()
	if decision := hash["decision"]; decision != "" {
		p.Decision = &registry.PairingDecision{}
		if err := json.Unmarshal([]byte(decision), p.Decision); err != nil {
			return p, registry.AsError(err)
		}
	}
	return p, nil
}

// Pairings implements registry.PairingStore.
func (s *Store) Pairings(ctx context.Context, tenant string) ([]registry.Pairing, error) {
	answer, err := s.conn.Do(ctx, "ZRANGE", pairingsKey, 0, registry.MaxPairings-1)
	if err != nil {
		return nil, redisconn.Unavailable("list pairings", err)
	}
	ids := answer.Strings()
	if len(ids) == 0 || tenant == "" {
		return nil, nil
	}
	pipe := s.conn.Pipeline()
	reads := make([]*redisconn.Command, len(ids))
	for i, id := range ids {
		reads[i] = pipe.Do("HGETALL", pairingKey(id))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("read pairings", err)
	}
	var found []registry.Pairing
	for _, read := range reads {
		hash := read.Map()
		if len(hash) == 0 { // it has expired
			continue
		}
		p, err := parsePairing(hash)
		if err != nil {
			return nil, err
		}
		if p.Tenant == tenant && p.Decision == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// PairingByCode implements registry.PairingStore.
func (s *Store) PairingByCode(
	ctx context.Context, codeDigest string, guesses ...registry.Guess,
) (registry.Pairing, error) {
	keys, args := []string{pairingCodeKey(codeDigest)}, []any{}
	for _, g := range guesses {
		keys, args = append(keys, pairingGuessKey(g.Name)), append(args, g.Limit, millis(g.Window), g.Share)
	}
	answer, err := s.conn.Eval(ctx, scriptPairingTry, keys, args...)
	if err != nil {
		return registry.Pairing{}, redisconn.Unavailable("look up a code", err)
	}
	if id, ok := answer.Text(); ok && id == "" {
		return registry.Pairing{}, registry.ErrPairingDecided
	} else if ok {
		return s.Pairing(ctx, id)
	}
	if wait := -answer.Int(); wait > 0 {
		return registry.Pairing{}, registry.ErrGuesses(time.Duration(wait) * time.Millisecond)
	}
	return registry.Pairing{}, registry.ErrNoPairing
}

// DecidePairing implements registry.PairingStore.
func (s *Store) DecidePairing(
	ctx context.Context, id string, d registry.PairingDecision, ttl time.Duration,
) (registry.Pairing, error) {
	p, err := s.Pairing(ctx, id)
	if err != nil {
		return registry.Pairing{}, err
	}
	decision, err := json.Marshal(d)
	if err != nil {
		return registry.Pairing{}, registry.AsError(err)
	}
	answer, err := s.conn.Eval(ctx, scriptPairingDecide, []string{pairingKey(id), pairingCodeKey(p.CodeDigest)},
		decision, millis(ttl), flag(p.CodeDigest != ""))
	if err != nil {
		return registry.Pairing{}, redisconn.Unavailable("decide a pairing", err)
	}
	switch answer.Int() {
	case 0:
		return registry.Pairing{}, registry.ErrNoPairing
	case 1:
		p.Decision = &d
		return p, nil
	}
	if p, err = s.Pairing(ctx, id); err != nil {
		return registry.Pairing{}, err
	}
	return p, registry.ErrPairingDecided
}

// TakePairing implements registry.PairingStore.
func (s *Store) TakePairing(ctx context.Context, id string) (registry.Pairing, error) {
	p, decision, err := s.readPairing(ctx, id)
	if err != nil {
		return registry.Pairing{}, err
	}
	if p.Decision == nil || !p.Decision.Approved {
		return registry.Pairing{}, registry.ErrNoPairing
	}
	answer, err := s.conn.Eval(ctx, scriptPairingTake,
		[]string{pairingKey(id), pairingsKey, pairingSourceKey(p.Source), pairingNetworkKey(p.Network)}, id, decision)
	if err != nil {
		return registry.Pairing{}, redisconn.Unavailable("take a pairing", err)
	}
	if answer.Int() != 1 {
		return registry.Pairing{}, registry.ErrNoPairing
	}
	return p, nil
}

// PutNonce implements registry.PairingStore.
func (s *Store) PutNonce(
	ctx context.Context, tenant, owner, nonce string, life time.Duration,
) error {
	_, err := s.conn.Eval(ctx, scriptNoncePut, []string{noncesKey(tenant, owner)},
		nonce, millis(life), registry.MaxNonces)
	return redisconn.Unavailable("keep a nonce", err)
}

// TakeNonce implements registry.PairingStore.
func (s *Store) TakeNonce(ctx context.Context, tenant, credential, nonce string) (bool, error) {
	answer, err := s.conn.Eval(ctx, scriptNonceTake, []string{noncesKey(tenant, credential)}, nonce)
	if err != nil {
		return false, redisconn.Unavailable("take a nonce", err)
	}
	return answer.Int() == 1, nil
}

// SetDeviceTools implements registry.PairingStore.
func (s *Store) SetDeviceTools(ctx context.Context, tenant, credential string, t registry.DeviceTools) error {
	if t.Size() > registry.MaxDeviceDefinitions {
		return registry.ErrDefinitionsTooLarge
	}
	text, err := json.Marshal(t)
	if err != nil {
		return registry.AsError(err)
	}
	_, err = s.conn.Do(ctx, "SET", deviceToolsKey(tenant, credential), text, "PX", credentialIdle)
	return redisconn.Unavailable("keep tools of a device", err)
}

// DeviceTools implements registry.PairingStore.
func (s *Store) DeviceTools(ctx context.Context, tenant, credential string) (registry.DeviceTools, error) {
	var t registry.DeviceTools
	answer, err := s.conn.Do(ctx, "GET", deviceToolsKey(tenant, credential))
	if err != nil {
		return t, redisconn.Unavailable("read tools of a device", err)
	}
	text, ok := answer.Text()
	if !ok {
		return t, nil
	}
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, registry.AsError(err)
	}
	for _, list := range [...][]registry.ToolSpec{t.Waiting, t.Pinned} {
		for i := range list {
			list[i] = list[i].Hashed()
		}
	}
	return t, nil
}
