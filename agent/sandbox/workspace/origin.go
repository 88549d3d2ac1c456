package workspace

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

// origin identifies the conversation and generation of a session folder, and the owner that last used it. It is stored
// in the file "origin" next to the workspace. Outside of conversations, Session and Generation are empty.
type origin struct {
	Tenant     string `json:"tenant,omitempty"`
	Session    string `json:"session,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	Epoch      int64  `json:"epoch,omitempty"` // as of registry.Place
}

const originFile = "origin"

// originOf returns the origin of an agent session's folder under the owner of a place.
func originOf(id agent.SessionID, at registry.Place) origin {
	o := origin{Tenant: id.Tenant, Epoch: at.Epoch}
	if id.Conversation != "" {
		o.Session, o.Generation = id.Conversation, id.Generation
	}
	return o
}

// readOrigin returns the origin of a folder. A folder without the file has the zero origin.
func readOrigin(dir string) (origin, error) {
	var o origin
	text, err := os.ReadFile(filepath.Join(dir, originFile))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return o, err
}

// write stores the origin in a folder, atomically.
func (o origin) write(dir string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, originFile)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone unless something failed
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, originFile))
}

// errElsewhere returns the error of a call whose session has moved to another pod since the call arrived.
func errElsewhere() error {
	return registry.Errorf(registry.CodeBusy, "Another pod owns this session now. Retry.")
}

// settle prepares the folder of an agent session for calls under the owner of a place. It reports whether files are
// lost: they were on a pod that is gone, on a disk that this pod does not share. If an earlier owner left the folder on
// this disk, and later owners continued on theirs, the folder is stale. It is then renamed, and removed when its TTL
// ends.
func (w *Workspaces) settle(id agent.SessionID, name string, at registry.Place) (lost bool, err error) {
	dir := filepath.Join(w.cfg.Dir, sessionsDir, name)
	files := filepath.Join(dir, filesDir)
	now := originOf(id, at)
	if was, err := readOrigin(dir); err == nil && was == now && isFolder(files) {
		return false, w.make(dir, files)
	}
	w.settling.Lock()
	defer w.settling.Unlock()
	was, err := readOrigin(dir)
	if err != nil {
		return false, err
	}
	there := isFolder(files)
	switch {
	case was.Epoch > at.Epoch && at.Epoch != 0:
		return false, errElsewhere()
	case !there:
		lost = at.Before != 0
	case was.Epoch < at.Before:
		lost = true
		if err := os.Rename(dir, dir+"-"+strconv.FormatInt(was.Epoch, 36)); err != nil {
			return false, err
		}
	}
	if err := w.make(dir, files); err != nil {
		return false, err
	}
	if was == now || now == (origin{}) || at.Epoch == 0 && was.Epoch != 0 {
		return lost, nil
	}
	return lost, now.write(dir)
}

func isFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// Earlier returns the workspaces on this disk of all other generations of a conversation.
func (w *Workspaces) Earlier(key registry.Key, current int64) []sandbox.Workspace {
	return w.where(key, func(o origin) bool { return o.Generation != current })
}

// At returns the workspaces of a place on this disk.
func (w *Workspaces) At(p registry.Place) []sandbox.Workspace {
	if key, ok := p.Key.Conversation(); ok {
		return w.where(key, func(o origin) bool { return o.Generation == p.Generation })
	}
	var found []sandbox.Workspace
	for _, boxed := range []bool{false, true} {
		id := agent.SessionID{Tenant: p.Key.Tenant, Identity: p.Key.Identity, Sandboxed: boxed}
		found = append(found, w.workspace(id.Tenant, w.nameOf(id)))
	}
	return found
}

// where returns the workspaces on this disk of a conversation whose origin satisfies is.
func (w *Workspaces) where(key registry.Key, is func(origin) bool) (found []sandbox.Workspace) {
	root := filepath.Join(w.cfg.Dir, sessionsDir)
	prefix := w.prefixOf(key.Tenant, key.Session)
	for e, err := range sandbox.Entries(root) {
		if err != nil {
			w.cfg.Log.Warn("workspaces not listed", "error", err)
			break
		}
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		o, err := readOrigin(filepath.Join(root, e.Name()))
		if err == nil && o.Tenant == key.Tenant && o.Session == key.Session && is(o) {
			found = append(found, w.workspace(key.Tenant, e.Name()))
		}
	}
	return found
}

// Remove removes a workspace.
func (w *Workspaces) Remove(space sandbox.Workspace) error {
	w.disk.forget(space.ID)
	return remove(filepath.Dir(space.Dir))
}

// keySize is the length of a key in bytes.
const keySize = 32

// readKey returns the key in a file, and creates it if needed. If several pods share the folder and create it
// concurrently, one key wins.
func readKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, err
		}
		key, err = os.ReadFile(path)
	}
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s is not a valid key: remove it and the folders next to it", path)
	}
	return key, err
}

// makeKey creates a key, unless the file already exists.
func makeKey(path string) error {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	whole := path + "." + rand.Text()
	defer os.Remove(whole)
	if err := os.WriteFile(whole, key, 0o600); err != nil {
		return err
	}
	if err := os.Link(whole, path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
