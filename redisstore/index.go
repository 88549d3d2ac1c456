package redisstore

import (
	"context"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// placement is a change of the indexes that one session is in.
type placement struct {
	session registry.Session
	add     []string // indexes that the session enters
	offered toolSet  // what the tenant's offers index must say; empty: nothing changes there
	known   bool     // the session is in its pod's index already
	keep    []string // other indexes that the session is in already
	remove  []string // indexes that the session leaves, unless they are also in add or keep
	upTo    int64    // highest generation whose entries are removed

	mirrors  []string // of indexes that the session is expected to be in again
	leavePod string   // pod whose index the session leaves; empty: none
}

// addSet makes p enter the index of a tool set.
func (p *placement) addSet(set toolSet) {
	if set.hash != "" {
		p.add, p.offered = append(p.add, membersIndex(p.session.Tenant, set.hash)), set
	}
}

// removeSet makes p leave the index of a tool set.
func (p *placement) removeSet(hash string) {
	if hash != "" {
		p.remove = append(p.remove, membersIndex(p.session.Tenant, hash))
	}
}

// place applies p. If the claim has ended meanwhile, place takes back what it added. Nothing is left behind: a script
// that ended the claim before the check at the end of place makes that check fail, and a pod that ends the claim after
// the check reads in the hashes what place has added, and removes it.
func (s *Store) place(ctx context.Context, p placement) error {
	session, gen := p.session, decimal(p.session.Generation)
	pipe := s.conn.SessionPipeline()
	if !p.known {
		s.enter(pipe, podSessionsKey(session.Pod), gen, podMember(session.Key))
		pipe.Then() // from here on a pod that cleans up after this one finds the session
	}
	s.mirror(pipe, session.Key.Session, p.mirrors)
	labels, others := splitLabels(session.Tenant, p.add)
	for _, key := range others {
		s.enter(pipe, key, gen, session.Key.Session)
	}
	if len(labels) > 0 {
		pipe.Eval(scriptLabelsAdd, labels, s.indexTTL, gen, session.Key.Session)
	}
	pipe.Then() // the session enters the index of its set before the offers do: offers of a set without sessions go
	offers := s.offer(pipe, p)
	pipe.Then() // a reader that no longer finds the session under its old set can find the new one
	leave := slices.DeleteFunc(slices.Clone(p.remove), func(key string) bool {
		return slices.Contains(p.add, key) || slices.Contains(p.keep, key)
	})
	pod := p.leavePod
	if pod == session.Pod {
		pod = ""
	}
	s.leaveIndexes(pipe, session.Key, leave, nil, pod, p.upTo)
	s.changed(pipe, session.Tenant)
	if p.known && len(p.add) == 0 { // nothing to take back
		return pipe.Exec(ctx)
	}
	claim := pipe.Do("HMGET", sessionKey(session.Key), fieldPod, fieldGeneration)
	if err := pipe.Exec(ctx); err != nil {
		return err
	}
	if err := offers.complete(ctx); err != nil {
		return err
	}
	if current := claim.Strings(); len(current) == 2 && current[0] == session.Pod && current[1] == gen {
		return nil
	}
	return s.takeBack(ctx, p)
}

// enter adds entries to an index, or raises their scores, and extends the index's life. A score never falls, so an add
// that comes late cannot hide a newer claim.
func (s *Store) enter(pipe *redisconn.Pipeline, index, score string, entries ...string) {
	command := []any{"ZADD", index, "GT"}
	for _, entry := range entries {
		command = append(command, score, entry)
	}
	pipe.Do(command...)
	pipe.Do("PEXPIRE", index, s.indexTTL)
}

// takeBack removes what place added for a claim that is no longer current. Entries of the offers index stay: they name
// no session, and a reader that finds one without sessions removes it.
func (s *Store) takeBack(ctx context.Context, p placement) error {
	pipe := s.conn.SessionPipeline()
	s.leaveIndexes(pipe, p.session.Key, p.add, nil, p.session.Pod, p.session.Generation)
	s.changed(pipe, p.session.Tenant)
	return pipe.Exec(ctx)
}

// leaveIndexes adds the scripts that take a session out of indexes, and out of that of its pod unless pod is empty, and
// put it into mirrors, to the pipeline. On a single server it is one script.
func (s *Store) leaveIndexes(
	pipe *redisconn.Pipeline, key registry.Key, indexes, mirrors []string, pod string, upTo int64,
) {
	leave := func(indexes []string, pod string, more ...string) {
		args := make([]any, 0, len(indexes)+4)
		args = append(args, decimal(upTo), mirrorLife.Milliseconds(), key.Session)
		for range indexes {
			args = append(args, key.Session)
		}
		if pod != "" {
			indexes, args = append(slices.Clip(indexes), podSessionsKey(pod)), append(args, podMember(key))
		}
		if len(indexes) > 0 {
			pipe.Eval(scriptIndexLeave, append(slices.Clip(indexes), more...), args...)
		}
	}
	if !s.conn.IsCluster() {
		leave(indexes, pod, append([]string{sessionKey(key)}, mirrors...)...)
		return
	}
	if len(mirrors) > 0 {
		s.mirror(pipe, key.Session, mirrors)
		pipe.Then() // who does not find the session in an index any more finds it in the mirror
	}
	labels, others := splitLabels(key.Tenant, indexes)
	leave(nil, pod)
	for _, index := range others {
		leave([]string{index}, "")
	}
	leave(labels, "")
}

// splitLabels splits indexes into those of labels, which one script may change together, and others.
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

// removals collects the entries that are to be removed from each index, so that one script removes many of them.
type removals map[string][]any

func (r removals) add(index, entry string, upTo int64) {
	r[index] = append(r[index], entry, decimal(upTo))
}

// removalArgs is how many arguments a removal script gets at most. It bounds how long the script blocks the server.
const removalArgs = 400

// into adds the scripts that remove the entries to the pipeline.
func (r removals) into(pipe *redisconn.Pipeline) {
	for index, args := range r {
		for part := range slices.Chunk(args, removalArgs) {
			pipe.Eval(scriptZRemIf, []string{index}, part...)
		}
	}
}
