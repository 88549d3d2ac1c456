package toolmemory

import (
	"context"

	"github.com/farhand/farhand/registry/documents"
)

// erasePage is how many memories are erased in one step.
const erasePage = 50

// Erase removes the memories that are charged to a user, and returns how many.
func Erase(ctx context.Context, docs documents.Store, tenant, user string) (removed int, err error) {
	in := space(tenant)
	for class := range classes {
		index := classIndex(userIndex(user), class)
		for {
			lists, err := docs.Members(ctx, documents.Query{Space: in, Index: index, Limit: erasePage})
			if err != nil {
				return removed, err
			}
			ids, n := lists[0], 0
			if len(ids) == 0 {
				break
			}
			err = documents.Change(ctx, docs, in, ids, func(found []documents.Document) ([]documents.Step, error) {
				steps := []documents.Step{}
				n = 0
				for i, id := range ids {
					steps = append(steps, documents.Leave(index, id), documents.Delete(id))
					if m, err := documents.Decode[memory](found[i], nil); err == nil && found[i].Exists() {
						n++
						steps = append(steps, m.drop(id)...)
					}
				}
				return steps, nil
			})
			if err != nil {
				return removed, err
			}
			removed += n
		}
	}
	return removed, nil
}
