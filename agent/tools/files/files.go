package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/answer"
	"github.com/farhand/farhand/registry"
)

// DefaultMaxBytes is how large one file may be where policy sets no bound.
const DefaultMaxBytes = 10 << 20

// maxEdited bounds the files that edit takes, whatever policy says: it has them in memory whole.
const maxEdited = 16 << 20

// Config configures the tools.
type Config struct {
	MaxBytes int64 // of one file, where policy sets no bound; default: DefaultMaxBytes
}

// Registration returns the tools read, write and edit, for agent.NewLocalTools.
func Registration(cfg Config) agent.Registration {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, DefaultMaxBytes)
	turns := newTurns()
	return agent.Registration{
		Names: []string{"read", "write", "edit"}, Keeps: agent.KeepsWorkspace(),
		Make: func(sc agent.SessionContext) []agent.Tool {
			s := session{cfg: cfg, turns: turns, workspace: sc.Workspace}
			return []agent.Tool{reader{s}, writer{s}, editor{s}}
		},
	}
}

// session is what the tools of one agent session share.
type session struct {
	cfg       Config
	turns     *turns
	workspace agent.Workspace
}

// open opens the workspace. The caller closes root.
func (s session) open(ctx context.Context) (root *os.Root, w sandbox.Workspace, err error) {
	if s.workspace == nil {
		return nil, w, refuse("There is no workspace here: the tool works in conversations and calls of a gateway " +
			"that keeps workspaces.")
	}
	if w, err = s.workspace.Open(ctx); err != nil {
		return nil, w, err
	}
	root, err = os.OpenRoot(w.Dir)
	return root, w, err
}

// maxBytes is how large one file may be.
func (s session) maxBytes(ctx context.Context) int64 {
	return cmp.Or(policy.ResourcesOf(ctx).MaxBytes, s.cfg.MaxBytes)
}

// refusal is a reason that a model can act on: the tool failed, and the gateway is fine.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// failed turns an error into what the caller gets: a failed result if it is about the file, else the error.
func failed(path string, err error) (registry.Result, error) {
	r, said := errors.AsType[refusal](err)
	_, known := errors.AsType[*registry.Error](err)
	switch {
	case said:
	case known:
		return registry.Result{}, err
	case errors.Is(err, fs.ErrNotExist):
		r = refusal(fmt.Sprintf("There is no file %q in the workspace.", path))
	case errors.Is(err, fs.ErrPermission):
		r = refusal(fmt.Sprintf("%q cannot be opened: the workspace's own user may not.", path))
	case noRoom(err):
		r = refusal(fmt.Sprintf("There is no room left for %q: the disk or the quota is full. Nothing was changed.",
			path))
	default:
		return registry.Result{}, err
	}
	return answer.Failed(string(r)), nil
}

// whole is a number without a fraction, as schemas take it: 3.0 is 3.
type whole int64

// UnmarshalJSON implements json.Unmarshaler.
func (w *whole) UnmarshalJSON(text []byte) error {
	var f float64
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f != math.Trunc(f) || math.Abs(f) > maxWhole {
		return errors.New("a whole number must stand here")
	}
	*w = whole(f)
	return nil
}

const maxWhole = 1e9
