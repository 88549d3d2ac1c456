package memory

// Kept returns what the journal of a store must have: the records of all that is in memory.
func (m *Store) Kept() map[Kind]map[string]string {
	c := new(change)
	for _, of := range m.documents.all.byTenant {
		for key, d := range of {
			d.keep(c, key)
		}
	}
	for key, x := range m.documents.indexes {
		for member := range x.times {
			x.keep(c, key, member)
		}
	}
	for _, of := range m.conversations.all.byTenant {
		for key, conversation := range of {
			if !conversation.recorded.IsZero() {
				conversation.keep(c, key, conversation.recorded)
			}
			for _, message := range conversation.messages {
				c.put(kindMessage, messageKey(key, message.number), message.RawMessage)
			}
			if conversation.draft != nil {
				c.put(kindDraft, conversationKey(key), conversation.draft)
			}
		}
	}
	for _, of := range m.conversations.places.byTenant {
		for _, p := range of {
			m.keepPlace(c, p, p.recorded, true)
		}
	}
	for owner, h := range m.continuations.all {
		for id, kept := range h.kept {
			c.put(kindContinuation, continuationKey(owner, id), packed(kept.data, nanos(kept.expires)))
		}
	}
	for _, log := range m.audits.all {
		for _, line := range log.lines {
			keepLine(c, line.id, line.entry)
		}
	}
	for at, day := range m.usage.all {
		for key, row := range day.rows {
			row.keep(c, key, at)
		}
	}
	for key, revoked := range m.changeLog.revoked {
		for id, at := range revoked {
			c.put(kindRevocation, key.record(id), packed(nil, nanos(at)))
		}
	}
	for _, line := range m.changeLog.log.lines {
		keepChange(c, line.entry)
	}
	for key, w := range m.windows.all {
		if key.period > briefWindow {
			c.put(kindWindow, key.record(), w.packed())
		}
	}
	return byKind(c.records)
}

func byKind(records []Record) map[Kind]map[string]string {
	all := make(map[Kind]map[string]string)
	for _, r := range records {
		if r.Kind == kindProbe {
			continue
		}
		if all[r.Kind] == nil {
			all[r.Kind] = make(map[string]string)
		}
		all[r.Kind][r.Key] = string(r.Value)
	}
	return all
}

// Recorded returns what a journal has.
func Recorded(j Journal) (map[Kind]map[string]string, error) {
	var all []Record
	err := j.Load(func(r Record) error {
		all = append(all, Record{r.Kind, r.Key, append([]byte{}, r.Value...)})
		return nil
	})
	return byKind(all), err
}

// Expire removes what has expired, as the keeper does every minute.
func (m *Store) Expire() { m.expire() }

// RetryPause is how long writes fail at once after a failed commit.
const RetryPause = retryPause
