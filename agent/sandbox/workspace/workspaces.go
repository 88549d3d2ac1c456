// Package workspace manages the folders of agent sessions. It creates them on first use, bounds their content, and
// removes them after a TTL without use.
//
// Start reading at Workspaces. Limited bounds a folder while programs run in it.
package workspace

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

// Defaults of Config.
const (
	DefaultMaxBytes = 256 << 20
	DefaultMaxFiles = 20_000
	DefaultTTL      = 24 * time.Hour
	DefaultUser     = 65534 // conventional uid of an unprivileged user
)

// Config configures Workspaces. Dir is required.
type Config struct {
	Dir      string        // absolute; created if missing. Pods with the same Dir share the workspaces
	AgentID  string        // default "main"
	MaxBytes int64         // disk usage of one workspace; default DefaultMaxBytes
	MaxFiles int           // files and folders in one workspace; default DefaultMaxFiles
	MinFree  int64         // free disk space that programs must leave, in bytes; default: MaxBytes
	TTL      time.Duration // how long a workspace is kept after its last use; default DefaultTTL

	Free func(sandbox.Workspace) (sandbox.DiskSpace, error) // returns the free space of the disk; default sandbox.Free

	// Generations returns the current generations of conversations, or zero if unknown. The folders of other
	// generations are removed. If nil, folders are only removed after the TTL.
	Generations func(ctx context.Context, keys []registry.Key) ([]int64, error)

	// User owns the workspaces and runs the programs in them if this process is root. Otherwise the user of this
	// process does. Default DefaultUser.
	User int
	Log  *slog.Logger // default: discard
}

// Workspaces is all workspaces of a gateway. It is safe for concurrent use.
//
//	Dir/key                         derives the names of the workspaces; only this user can read it
//	Dir/agents/ID                   the folder of an agent
//	Dir/sessions/ID                 one agent session; its modification time is its last use
//	Dir/sessions/ID/files           its workspace
//	Dir/sessions/ID/origin          its conversation and generation
type Workspaces struct {
	cfg      Config
	uid, gid int
	key      []byte     // HMAC key for the names of workspaces
	settling sync.Mutex // held while a folder is created, or gets another owner
	cleaning cleaning   // commands in full workspaces
	disk     *disk
	stop     context.CancelFunc
	done     sync.WaitGroup
}

// passable is the mode of the folders above a workspace: programs of other users can traverse them, but not list them.
const passable = 0o711

const (
	sessionsDir = "sessions"
	agentsDir   = "agents"
	filesDir    = "files"
	keyFile     = "key"
)

// New creates the folders, and starts a goroutine that removes old workspaces. Close stops it.
func New(cfg Config) (*Workspaces, error) {
	cfg.withDefaults()
	if !filepath.IsAbs(cfg.Dir) {
		return nil, fmt.Errorf("workspace: %q is not an absolute path", cfg.Dir)
	}
	if !registry.ValidToolName(cfg.AgentID) {
		return nil, fmt.Errorf("workspace: %q is not a valid agent id: use letters, digits, _ . and -",
			cfg.AgentID)
	}
	w := &Workspaces{cfg: cfg, uid: os.Getuid(), gid: os.Getgid(), disk: newDisk(cfg)}
	if w.uid == 0 {
		w.uid, w.gid = cfg.User, cfg.User
	}
	err := os.MkdirAll(filepath.Dir(cfg.Dir), 0o755)
	for _, dir := range []string{
		cfg.Dir, filepath.Join(cfg.Dir, sessionsDir), filepath.Join(cfg.Dir, agentsDir), w.AgentDir(),
	} {
		if err == nil {
			err = makeDir(dir, passable)
		}
	}
	if err == nil {
		w.key, err = readKey(filepath.Join(cfg.Dir, keyFile))
	}
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.done.Go(func() { w.sweepUntil(ctx) })
	return w, nil
}

// CheckDir returns why a folder can neither be used nor created, without creating it: a file is in its way. It does not
// check write access; New does.
func CheckDir(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir)
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no folder", dir)
		default:
			return nil
		}
	}
}

func (cfg *Config) withDefaults() {
	cfg.AgentID = cmp.Or(cfg.AgentID, "main")
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.MaxFiles <= 0 {
		cfg.MaxFiles = DefaultMaxFiles
	}
	if cfg.MinFree <= 0 {
		cfg.MinFree = cfg.MaxBytes
	}
	if cfg.Free == nil {
		cfg.Free = sandbox.Free
	}
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.User <= 0 {
		cfg.User = DefaultUser
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

// AgentDir returns the folder of the agent.
func (w *Workspaces) AgentDir() string { return filepath.Join(w.cfg.Dir, agentsDir, w.cfg.AgentID) }

// Find implements agent.Workspaces.
func (w *Workspaces) Find(id agent.SessionID, at registry.Place) agent.Workspace {
	return space{w, id, w.nameOf(id), at}
}

func (w *Workspaces) workspace(tenant, name string) sandbox.Workspace {
	return sandbox.Workspace{
		ID: name, Tenant: tenant, Dir: filepath.Join(w.cfg.Dir, sessionsDir, name, filesDir), UID: w.uid, GID: w.gid,
		MaxBytes: w.cfg.MaxBytes, MaxFiles: w.cfg.MaxFiles, Share: w.disk,
	}
}

// nameOf returns the name of an agent session's folder. It cannot be guessed without the key. This matters because
// programs of all workspaces may run as the same user, and can traverse the parent folder, but not list it. The folders
// of one conversation have the same prefix.
func (w *Workspaces) nameOf(id agent.SessionID) string {
	text := fmt.Sprintf("%q %q %q %t", id.Tenant, id.Conversation, id.Identity, id.Sandboxed)
	if id.Conversation == "" {
		return w.digest(text, nameBytes)
	}
	return w.prefixOf(id.Tenant, id.Conversation) + w.digest(fmt.Sprintf("%s %d", text, id.Generation), nameBytes)
}

const (
	nameBytes   = 16
	prefixBytes = 8
)

// prefixOf returns the prefix of a conversation's folder names.
func (w *Workspaces) prefixOf(tenant, conversation string) string {
	return w.digest(fmt.Sprintf("%q %q", tenant, conversation), prefixBytes)
}

// digest returns the first n bytes of an HMAC of text, in hex.
func (w *Workspaces) digest(text string, n int) string {
	sum := hmac.New(sha256.New, w.key)
	sum.Write([]byte(text))
	return hex.EncodeToString(sum.Sum(nil)[:n])
}

// space is one workspace.
type space struct {
	all  *Workspaces
	id   agent.SessionID
	name string
	at   registry.Place
}

// Open implements agent.Workspace. It creates the folder if it is missing, records its use, and reports lost files to
// the caller of the tool.
func (s space) Open(ctx context.Context) (sandbox.Workspace, error) {
	w := s.all
	lost, err := w.settle(s.id, s.name, s.at)
	switch {
	case errors.Is(err, registry.CodeBusy):
		return sandbox.Workspace{}, err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		w.cfg.Log.Error("workspace not created: the disk is full", "error", err)
		return sandbox.Workspace{}, registry.Errorf(registry.CodeBusy, "The gateway's disk has no space for "+
			"the folder of this session. Ask the operator to free some.").With(registry.DispatchedNo)
	case err != nil:
		w.cfg.Log.Error("workspace not created", "error", err)
		return sandbox.Workspace{}, registry.Errorf(registry.CodeInternal,
			"The folder of this session cannot be created; see the gateway's log.")
	case lost:
		agent.ReportLost(ctx,
			"The pod with the workspace is gone and its files are lost. This is a new, empty workspace.")
	}
	return w.workspace(s.id.Tenant, s.name), nil
}

// make creates the folders of one agent session. It retries, because a concurrent sweep may remove them.
func (w *Workspaces) make(dir, files string) (err error) {
	for range 3 {
		now := time.Now()
		err = errors.Join(makeDir(dir, passable), os.Chtimes(dir, now, now))
		if err == nil {
			err = errors.Join(makeDir(files, 0o700), sandbox.Unlock(files)) // a program may have changed its mode
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Lchown(files, w.uid, w.gid)
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeDir creates a folder with this mode, regardless of the umask. An existing folder is fine; anything else is an
// error.
func makeDir(path string, mode os.FileMode) error {
	err := os.Mkdir(path, mode)
	if err == nil {
		return os.Chmod(path, mode)
	}
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", path)
	}
	return err
}

// Close stops the removal of old workspaces, and waits until it has stopped. The workspaces stay.
func (w *Workspaces) Close() {
	w.stop()
	w.done.Wait()
}
