package redisstore

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// placement is a change of the indexes one session stands in.
type placement struct {
	session registry.Session
	add     []string // indexes to stand in
	offers  []any    // members of the tenant's offers index to add
	offered toolSet  // the set they are of
	keep    []string // indexes it stands in already
	remove  []string // indexes to leave; those also in add or keep are kept
	upTo    int64    // highest generation to remove
	leave   string   // pod that no longer has the session, empty: none
}

// addSet makes p stand in the index of a tool set.
func (p *placement) addSet(set toolSet) {
	if set.hash != "" {
		p.add = append(p.add, membersIndex(p.session.Tenant, set.hash))
		p.offers, p.offered = nil, set
		for _, member := range set.members() {
			p.offers = append(p.offers, member)
		}
	}
}

// removeSet makes p leave the index of a tool set.
func (p *placement) removeSet(hash string) {
	if hash != "" {
		p.remove = append(p.remove, membersIndex(p.session.Tenant, hash))
	}
}

// place applies p, and takes back what it added if the claim has ended meanwhile. Either the script that ended it
// ran before this check, which then fails; or it ran after, and whoever ran it saw in the hashes what had been added.
func (s *Store) place(ctx context.Context, p placement) error {
	ref, gen := p.session, decimal(p.session.Generation)
	pipe := s.conn.SessionPipeline()
	pipe.Eval(scriptIndexAdd, []string{podSessionsKey(ref.Pod)}, s.indexTTL, gen, podMember(ref.Key))
	pipe.Then() // from here on, a pod that cleans up after this one finds the session
	labels, others := splitLabels(ref.Tenant, p.add)
	for _, key := range others {
		pipe.Eval(scriptIndexAdd, []string{key}, s.indexTTL, gen, ref.Key.Session)
	}
	if len(labels) > 0 {
		pipe.Eval(scriptLabelsAdd, labels, s.indexTTL, gen, ref.Key.Session)
	}
	pipe.Then()
	if len(p.offers) > 0 { // after the index of the set: what counts nobody is removed
		pipe.Eval(scriptIndexAdd, []string{offersIndex(ref.Tenant)}, append([]any{s.indexTTL, 0}, p.offers...)...)
		aged := make(ages)
		aged.add(ref, p.offered)
		aged.into(pipe, s.indexTTL)
	}
	pipe.Then() // a reader that no longer finds the session under its old set can find the new one
	gone := slices.DeleteFunc(slices.Clone(p.remove), func(key string) bool {
		return slices.Contains(p.add, key) || slices.Contains(p.keep, key)
	})
	s.leaveIndexes(pipe, p.session.Key, gone, p.upTo)
	if p.leave != "" && p.leave != ref.Pod {
		pipe.Eval(scriptZRemIf, []string{podSessionsKey(p.leave)}, podMember(ref.Key), decimal(p.upTo))
	}
	s.changed(pipe, ref.Tenant)
	owner := pipe.Do("HMGET", sessionKey(ref.Key), fieldPod, fieldGeneration)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	if current := owner.Strings(); len(current) == 2 && current[0] == ref.Pod && current[1] == gen {
		return nil
	}
	return s.takeBack(ctx, p)
}

// takeBack removes what place added for a claim that is no longer current. Entries of the offers index stay: they name
// no session, and a reader that finds one without sessions removes it.
func (s *Store) takeBack(ctx context.Context, p placement) error {
	gen := decimal(p.session.Generation)
	pipe := s.conn.SessionPipeline()
	s.leaveIndexes(pipe, p.session.Key, p.add, p.session.Generation)
	pipe.Eval(scriptZRemIf, []string{podSessionsKey(p.session.Pod)}, podMember(p.session.Key), gen)
	s.changed(pipe, p.session.Tenant)
	return pipe.Exec(ctx)
}

// leaveIndexes adds to the batch what takes a session out of indexes.
func (s *Store) leaveIndexes(pipe *redisconn.Pipeline, key registry.Key, indexes []string, upTo int64) {
	labels, others := splitLabels(key.Tenant, indexes)
	for _, index := range others {
		pipe.Eval(scriptZRemIf, []string{index}, key.Session, decimal(upTo))
	}
	if len(labels) > 0 {
		pipe.Eval(scriptLabelsRem, labels, key.Session, decimal(upTo))
	}
}

// splitLabels tells the indexes of labels, which one script may change together, from others.
func splitLabels(tenant string, indexes []string) (labels, others []string) {
	prefix := labelsPrefix(tenant)
	for _, index := range indexes {
		if strings.HasPrefix(index, prefix) {
			labels = append(labels, index)
		} else {
			others = append(others, index)
		}
	}
	return labels, others
}

// removals collects members to remove from indexes, so that each index is visited once.
type removals map[string][]any

func (r removals) add(index, member string, upTo int64) {
	r[index] = append(r[index], member, decimal(upTo))
}

// removalArgs bounds how many arguments one removal script gets, and so how long it blocks the server.
const removalArgs = 400

// into adds to the batch what removes the members from their indexes.
func (r removals) into(pipe *redisconn.Pipeline) {
	for index, args := range r {
		for part := range slices.Chunk(args, removalArgs) {
			pipe.Eval(scriptZRemIf, []string{index}, part...)
		}
	}
}
