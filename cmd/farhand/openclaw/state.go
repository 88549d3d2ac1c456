// Package openclaw reads an installation of OpenClaw: its paired nodes, and which commands and programs it allows. It
// changes nothing there. It reads the SQLite state of 2026.7 and later, the JSON files of earlier versions, and the
// configuration if that is JSON with comments. What it cannot take over is listed in Installation.LeftOut.
package openclaw

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Installation is what Farhand can take over.
type Installation struct {
	Nodes   []Node // in the order of their device ids
	Policy  Policy
	LeftOut []string // one sentence each: what, and why

	// Warnings say why the import may be incomplete, and what to do.
	Warnings []string
}

// Node is a paired node.
type Node struct {
	DeviceID    string
	PublicKey   ed25519.PublicKey
	TokenDigest string // the SHA-256 of its token, in hexadecimal digits; the node goes on to use the token once
	Name        string
	Platform    string
	Commands    []string // that were approved
}

// maxFile is the limit of a JSON file in bytes.
const maxFile = 16 << 20

// ErrNothing is the error for a directory without an installation.
var ErrNothing = errors.New("there is no OpenClaw installation: give its state directory, which is ~/.openclaw by " +
	"default and has a file state/openclaw.sqlite or devices/paired.json")

// Read reads an installation. An error names the file that could not be read.
func Read(dir string) (Installation, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return Installation{}, ErrNothing
	}
	var in Installation
	found := false
	for _, read := range []func(string, *Installation) (bool, error){readDatabaseState, readFileState, readConfig} {
		ok, err := read(dir, &in)
		if err != nil {
			return Installation{}, err
		}
		found = found || ok
	}
	if !found {
		return Installation{}, ErrNothing
	}
	in.warnRunning(dir)
	slices.SortFunc(in.Nodes, func(a, b Node) int { return strings.Compare(a.DeviceID, b.DeviceID) })
	return in, nil
}

// databasePath returns the path of the state's database, since 2026.7.
func databasePath(dir string) string { return filepath.Join(dir, "state", "openclaw.sqlite") }

func (in *Installation) leaveOut(format string, args ...any) {
	in.LeftOut = append(in.LeftOut, fmt.Sprintf(format, args...))
}

// device is a paired device, as both kinds of state have it.
type device struct {
	DeviceID    string              `json:"deviceId"`
	PublicKey   string              `json:"publicKey"`
	DisplayName string              `json:"displayName"`
	Platform    string              `json:"platform"`
	Role        string              `json:"role"`
	Roles       []string            `json:"roles"`
	Tokens      map[string]roleAuth `json:"tokens"`
	Surface     *surface            `json:"nodeSurface"`
}

type roleAuth struct {
	Token       string `json:"token"`
	RevokedAtMS int64  `json:"revokedAtMs"`
}

// surface is what was approved of a node.
type surface struct {
	DisplayName string   `json:"displayName"`
	Commands    []string `json:"commands"`
}

const roleNode = "node"

// add adds a device to the nodes, or says why not.
func (in *Installation) add(d device) error {
	if d.Role != roleNode && !slices.Contains(d.Roles, roleNode) {
		in.leaveOut("the device %s: it is no node but %s", shown(d), strings.Join(append(d.Roles, d.Role), " "))
		return nil
	}
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(d.PublicKey, "="))
	sum := sha256.Sum256(key)
	if err != nil || len(key) != ed25519.PublicKeySize || hex.EncodeToString(sum[:]) != d.DeviceID {
		return fmt.Errorf("the device %q has a key that does not fit its id", d.DeviceID)
	}
	n := Node{DeviceID: d.DeviceID, PublicKey: key, Name: d.DisplayName, Platform: d.Platform}
	if d.Surface != nil {
		n.Commands = d.Surface.Commands
		if n.Name == "" {
			n.Name = d.Surface.DisplayName
		}
	}
	token := d.Tokens[roleNode]
	switch {
	case token.Token == "" || token.RevokedAtMS != 0:
		in.leaveOut("the node %s: it has no valid token; pair it again", shown(d))
		return nil
	case len(token.Token) < minToken:
		in.leaveOut("the node %s: its token is too short to be safe; pair it again", shown(d))
		return nil
	}
	digest := sha256.Sum256([]byte(token.Token))
	n.TokenDigest = hex.EncodeToString(digest[:])
	if slices.ContainsFunc(in.Nodes, func(other Node) bool { return other.DeviceID == n.DeviceID }) {
		return nil // the database counts, which was read first
	}
	in.Nodes = append(in.Nodes, n)
	return nil
}

// minToken is the shortest token that the gateway looks up (minImportedToken of package pairing).
const minToken = 32

func shown(d device) string {
	id := d.DeviceID[:min(12, len(d.DeviceID))]
	if d.DisplayName == "" {
		return id
	}
	return fmt.Sprintf("%q (%s)", d.DisplayName, id)
}

// Tables of the database of 2026.9.6.
const (
	tablePaired  = "device_pairing_paired"
	tablePending = "device_pairing_pending"
	tableExec    = "exec_approvals_config"
)

func readDatabaseState(dir string, in *Installation) (bool, error) {
	path := databasePath(dir)
	db, file, err := openDatabase(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	if err := in.readTables(db); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

func (in *Installation) readTables(db *database) error {
	paired, found, err := db.table(tablePaired)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("there is no table %s: the version of OpenClaw is not known", tablePaired)
	}
	for _, r := range paired {
		d := device{
			DeviceID: r.text("device_id"), PublicKey: r.text("public_key"), DisplayName: r.text("display_name"),
			Platform: r.text("platform"), Role: r.text("role"),
		}
		if label := r.text("operator_label"); label != "" {
			d.DisplayName = label
		}
		for column, into := range map[string]any{
			"roles_json": &d.Roles, "tokens_json": &d.Tokens, "node_surface_json": &d.Surface,
		} {
			if text := r.text(column); text != "" {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					return fmt.Errorf("the column %s of the device %q: %w", column, d.DeviceID, err)
				}
			}
		}
		if err := in.add(d); err != nil {
			return err
		}
	}
	pending, _, err := db.table(tablePending)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		in.leaveOut("%d requests to pair: the devices ask again", len(pending))
	}
	rules, _, err := db.table(tableExec)
	if err != nil {
		return err
	}
	for _, r := range rules {
		if err := in.readExecRules([]byte(r.text("raw_json"))); err != nil {
			return fmt.Errorf("the table %s: %w", tableExec, err)
		}
	}
	return nil
}

// readFileState reads the files of versions before 2026.7.
func readFileState(dir string, in *Installation) (bool, error) {
	devices, found, err := readJSON[map[string]device](filepath.Join(dir, "devices", "paired.json"))
	if err != nil {
		return false, err
	}
	surfaces, hasNodes, err := readJSON[map[string]surface](filepath.Join(dir, "nodes", "paired.json"))
	if err != nil {
		return false, err
	}
	for id, d := range devices {
		d.DeviceID = id
		if s, ok := surfaces[id]; ok && d.Surface == nil {
			d.Surface = &s
		}
		delete(surfaces, id)
		if err := in.add(d); err != nil {
			return false, fmt.Errorf("%s: %w", filepath.Join(dir, "devices", "paired.json"), err)
		}
	}
	if len(surfaces) > 0 {
		in.leaveOut("%d nodes without a key, of an old version: pair them again", len(surfaces))
	}
	rules, hasRules, err := readJSON[json.RawMessage](filepath.Join(dir, "exec-approvals.json"))
	if err == nil && hasRules {
		err = in.readExecRules(rules)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(dir, "exec-approvals.json"), err)
	}
	return found || hasNodes || hasRules, nil
}

// readJSON reads a file of JSON, false if it does not exist.
func readJSON[T any](path string) (v T, found bool, err error) {
	text, err := readFile(path)
	if err != nil || text == nil {
		return v, false, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, false, fmt.Errorf("%s: %w", path, err)
	}
	return v, true, nil
}

// readFile reads a file of at most maxFile bytes, nil if it does not exist.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// warnRunning adds a warning for each sign that the gateway of an installation still runs. What it writes meanwhile may
// be missing in the import. The signs also stay when a gateway was killed, and its process may be in a container, so
// they do not prove it.
func (in *Installation) warnRunning(dir string) {
	for _, path := range lockFiles(dir) {
		in.warn("the gateway of this installation may still run%s: its lock file is %s", ownerOf(path), path)
	}
	// SQLite removes the file when the last program closes the database (https://sqlite.org/walformat.html).
	if shared := databasePath(dir) + "-shm"; exists(shared) {
		in.warn("a program may still have the database open: there is %s", shared)
	}
}

func (in *Installation) warn(format string, args ...any) {
	in.Warnings = append(in.Warnings, fmt.Sprintf(format, args...)+
		". Stop the gateway and import again, or nodes that it changes are missing. If it does not run, ignore this.")
}

// lockFiles returns the lock files of a gateway, which it removes when it stops (its src/infra/gateway-lock.ts). They
// are in the state directory since 2026.7. Earlier versions have one for each configuration, in the system's directory
// for temporary files.
func lockFiles(dir string) []string {
	found, _ := fs.Glob(os.DirFS(dir), "tmp/openclaw*/gateway.*.lock") // the pattern is valid
	for i := range found {
		found[i] = filepath.Join(dir, filepath.FromSlash(found[i]))
	}
	absolute, err := filepath.Abs(filepath.Join(dir, configFile))
	if err != nil {
		return found
	}
	name := "openclaw"
	if uid := os.Getuid(); uid >= 0 { // not on Windows
		name += "-" + strconv.Itoa(uid)
	}
	sum := sha256.Sum256([]byte(absolute))
	path := filepath.Join(os.TempDir(), name, "gateway."+hex.EncodeToString(sum[:4])+".lock")
	if exists(path) {
		found = append(found, path)
	}
	return found
}

// maxLock is the limit of what is read of a lock file, in bytes.
const maxLock = 64 << 10

// ownerOf returns the process that a lock file names, for a sentence; empty if it names none.
func ownerOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it is only read
	text, err := io.ReadAll(io.LimitReader(file, maxLock))
	var lock struct {
		PID int `json:"pid"`
	}
	if err != nil || json.Unmarshal(text, &lock) != nil || lock.PID <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", lock.PID)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
