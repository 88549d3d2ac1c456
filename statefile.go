package farhand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/caarlos0/env/v11"

	"github.com/farhand/farhand/internal/bytesize"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/memory/statefile"
)

// NoData is the value of Config.DataDir for a store in memory alone.
const NoData = "off"

// ErrDataInUse is the error of New if another process has the state file of Config.DataDir.
var ErrDataInUse = statefile.ErrInUse

// keepsFile reports whether a gateway without a store of its own keeps its data in a file.
func (c Config) keepsFile() bool { return c.RedisURL == "" && c.DataDir != "" && c.DataDir != NoData }

// StateDir returns the folder where programs keep the gateway's data by default: farhand in XDG_STATE_HOME, else
// /var/lib/farhand for root, else farhand in the user's state folder. It is the default of FARHAND_WORKSPACE_DIR, and
// that of FARHAND_DATA_DIR in `farhand serve`. environ has NAME=VALUE, as os.Environ returns it. StateDir fails if the
// user has no home.
func StateDir(environ []string) (string, error) {
	vars := env.ToMap(environ)
	dir, err := vars["HOME"], error(nil)
	if dir == "" {
		dir, err = os.UserHomeDir()
	}
	switch state := vars["XDG_STATE_HOME"]; {
	case filepath.IsAbs(state):
		dir, err = state, nil
	case os.Getuid() == 0:
		return "/var/lib/farhand", nil
	case runtime.GOOS == "windows":
		dir, err = os.UserCacheDir()
	case runtime.GOOS == "darwin":
		dir = filepath.Join(dir, "Library", "Application Support")
	default:
		dir = filepath.Join(dir, ".local", "state")
	}
	if err != nil {
		return "", fmt.Errorf("this user has no home folder: %w", err)
	}
	return filepath.Join(dir, "farhand"), nil
}

// openMemory opens the store of a single process, and its file unless it keeps none. The caller closes the store, which
// closes the file.
func (c Config) openMemory(limits registry.Limits, log *slog.Logger) (*memory.Store, *statefile.File, error) {
	options := memory.Options{Limits: limits, Log: log}
	if !c.keepsFile() {
		return memory.New(options), nil, nil
	}
	file, err := statefile.Open(c.DataDir)
	if err != nil {
		return nil, nil, explainFile(err)
	}
	store, err := memory.Open(options, file)
	if err != nil {
		return nil, nil, explainFile(err)
	}
	return store, file, nil
}

// explainFile adds what to do to an error of the state file.
func explainFile(err error) error {
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w\n  set it to a folder that this user can write to, or to %s: then a restart forgets "+
			"keys, pairings, grants, conversations and the audit log", err, NoData)
	}
	return fmt.Errorf("FARHAND_DATA_DIR: %w", err)
}

// State describes where a gateway with this configuration keeps its data beyond a restart. It fails if it could not, or
// if other users could read the data. A file that another process has is no failure.
func (c Config) State() (string, error) {
	switch {
	case c.RedisURL != "":
		return "in Redis (FARHAND_REDIS_URL)", nil
	case !c.keepsFile():
		return "in memory, for one process: lost when it ends. FARHAND_DATA_DIR keeps it in a file; a fleet needs " +
			"FARHAND_REDIS_URL", nil
	}
	s, err := statefile.Look(c.DataDir)
	switch {
	case err != nil:
		return "", explainFile(err)
	case s.Exposed != nil:
		return "", explainFile(s.Exposed)
	case s.InUseBy != nil:
		return fmt.Sprintf("%s (%s). A running gateway has it: process %d on %s",
			s.Path, bytesize.Format(uint64(s.Size)), s.InUseBy.PID,
			s.InUseBy.Host), nil
	case s.Size == 0:
		return s.Path + ", which does not exist yet", nil
	default:
		return fmt.Sprintf("%s (%s)", s.Path, bytesize.Format(uint64(s.Size))), nil
	}
}

// closeMemory closes the store of a single process, if there is one.
func (g *Gateway) closeMemory(ctx context.Context) error {
	if g.memory == nil {
		return nil
	}
	return g.memory.Close(ctx)
}
