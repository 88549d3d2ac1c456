package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/farhand/farhand/agent/sandbox"
)

// File access rights under Landlock.
const (
	readRights = landlock.AccessFSExecute | landlock.AccessFSReadFile | landlock.AccessFSReadDir
	fileRights = landlock.AccessFSExecute | landlock.AccessFSReadFile | landlock.AccessFSWriteFile |
		landlock.AccessFSTruncate // all rights that apply to files other than folders
	workspaceRights = ^uint64(landlock.AccessFSMakeChar | landlock.AccessFSMakeBlock)
)

// Versions of Landlock, by the feature that they add.
const (
	abiTruncate   = 3
	abiTCP        = 4
	abiScopes     = 6
	abiUDP        = 10
	abiNewestFile = 9 // the last one that adds file rights
)

// fileRightsOf lists all file rights of each version of Landlock.
var fileRightsOf = [abiNewestFile + 1]uint64{
	1: 1<<13 - 1, 2: 1<<14 - 1, 3: 1<<15 - 1, 4: 1<<15 - 1, 5: 1<<16 - 1, 6: 1<<16 - 1, 7: 1<<16 - 1, 8: 1<<16 - 1,
	9: 1<<17 - 1,
}

// readable returns globs of the files and folders that confined programs may read and execute: programs, libraries, and
// the public parts of /etc that those need. It excludes /proc, /home, /root, /run, /tmp and /var.
func readable() []string {
	return []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
		"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/nsswitch.conf", "/etc/mime.types",
		"/etc/magic", "/etc/alternatives", "/etc/python3*", "/etc/perl", "/etc/ssl/openssl.cnf", "/etc/ssl/certs",
	}
}

// devices returns the devices that confined programs may read and write.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// Probe returns nil if programs can be confined here without a container. Otherwise its error wraps
// sandbox.ErrUnavailable and gives the reason.
func Probe() error {
	if _, err := landlockABI(); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	if err := probeFilter(); err != nil {
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
	return nil
}

// landlockABI returns the version of Landlock, or why it is unavailable.
func landlockABI() (int, error) {
	abi, err := landlock.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, errors.New("this kernel has no Landlock; use Linux 5.13 or newer, built with it")
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, errors.New("the kernel has Landlock disabled at boot; add it to the kernel parameter lsm=")
	case err != nil:
		return 0, fmt.Errorf("the kernel does not offer Landlock: %w", err)
	case abi < 1:
		return 0, fmt.Errorf("this kernel has Landlock version %d; at least 1 is required", abi)
	}
	return abi, nil
}

// restrictFiles confines this thread to the workspace and the readable files. The decision about this engine lists the
// gaps of older Landlock versions; filterFor closes some of them.
func restrictFiles(abi int, workspace *os.File) error {
	attr := landlock.RulesetAttr{HandledAccessFS: fileRightsOf[min(abi, abiNewestFile)]}
	if abi >= abiTCP { // the filter already denies sockets; this is a second barrier
		attr.HandledAccessNet = landlock.AccessNetBindTCP | landlock.AccessNetConnectTCP
	}
	if abi >= abiUDP {
		attr.HandledAccessNet |= landlock.AccessNetBindUDP | landlock.AccessNetConnectSendUDP
	}
	if abi >= abiScopes {
		attr.Scoped = landlock.ScopeAbstractUnixSocket | landlock.ScopeSignal
	}
	ruleset, err := landlock.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	defer unix.Close(ruleset)
	allow := func(fd int, rights uint64) error {
		return landlock.LandlockAddPathBeneathRule(ruleset,
			&landlock.PathBeneathAttr{ParentFd: fd, AllowedAccess: rights & attr.HandledAccessFS}, 0)
	}
	if err := allow(int(workspace.Fd()), workspaceRights); err != nil {
		return fmt.Errorf("landlock: the workspace: %w", err)
	}
	for _, glob := range readable() {
		paths, _ := filepath.Glob(glob)
		for _, path := range paths {
			if err := allowPath(path, readRights, allow); err != nil {
				return err
			}
		}
	}
	for _, path := range devices() {
		if err := allowPath(path, landlock.AccessFSReadFile|landlock.AccessFSWriteFile, allow); err != nil {
			return err
		}
	}
	if err := landlock.LandlockRestrictSelf(ruleset, 0); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// restrictSignals restricts only the signals of this thread, to its own processes.
func restrictSignals() error {
	ruleset, err := landlock.LandlockCreateRuleset(&landlock.RulesetAttr{Scoped: landlock.ScopeSignal}, 0)
	if err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	defer unix.Close(ruleset)
	if err := landlock.LandlockRestrictSelf(ruleset, 0); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	return nil
}

// allowPath allows access to a path, if it exists.
func allowPath(path string, rights uint64, allow func(fd int, rights uint64) error) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	if err := allow(fd, rights); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	return nil
}
