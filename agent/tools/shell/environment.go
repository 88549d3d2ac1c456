package shell

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/sandbox"
)

// basics is the base environment of every program. It inherits nothing from the gateway.
var basics = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
}

// home returns HOME for engines that run programs at the workspace's own path. Containers mount it elsewhere, so their
// engine sets HOME. Each engine sets TMPDIR itself.
func home(e sandbox.Engine, w sandbox.Workspace) []string {
	if e.Name() == "docker" {
		return nil
	}
	return []string{"HOME=" + w.Dir}
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

	// steering matches names of variables that change which programs run, or what they read at start.
	steering = regexp.MustCompile(`(?i)^(` +
		`PATH|IFS|ENV|HOME|TMPDIR|SHELL|PWD|OLDPWD|CDPATH|PS[0-9]|SHELLOPTS|BASHOPTS|GLOBIGNORE|PROMPT_COMMAND|` +
		`BASH.*|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|GLIBC_TUNABLES|` +
		`.*PAGER|.*EDITOR|VISUAL|BROWSER|LESS.*|MANOPT|MANROFFOPT|` +
		`GIT_.*|SSH_.*|RSYNC_.*|TAR_OPTIONS|TAPE|GZIP|BZIP2?|XZ_.*|ZIPOPT|UNZIP.*|GREP_.*|.*FLAGS|.*_OPTS|.*_OPTIONS|` +
		`PYTHON.*|PERL.*|RUBY.*|NODE_.*|NPM_.*|LUA_.*|PHP.*|JAVA_.*|JDK_.*|CLASSPATH|AWK.*|GAWK.*|` +
		`GO.*|CARGO.*|RUST.*|CC|CXX|LD|AR|MAKE.*|POSIXLY_CORRECT|FTP.*|.*_PROXY|CURL_.*|WGETRC|XDG_.*` +
		`)$`)
)

// steers reports whether a variable changes which programs run, or what they read at start.
func steers(name string) bool { return steering.MatchString(name) }

func validName(name string) bool { return variableName.MatchString(name) }

func validVariable(v string) bool {
	name, _, ok := strings.Cut(v, "=")
	return ok && validName(name) && !strings.ContainsRune(v, 0)
}

// variables returns the environment of a call. In mode full a call may set any variable, otherwise only those in
// Config.EnvNames.
func (r runner) variables(set map[string]string, full bool) ([]string, error) {
	env := slices.Concat(basics, r.cfg.Env)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch {
		case !validName(name) || !validVariable(name+"="+set[name]):
			return nil, fmt.Errorf("env: %.80q is not a valid variable name, or its value has a NUL character",
				name)
		case !full && (steers(name) || !slices.Contains(r.cfg.EnvNames, name)):
			return nil, forbidden("The environment variable %q is not allowed. %s", name, r.settable())
		}
		env = append(env, name+"="+set[name])
	}
	return env, nil
}

func (r runner) settable() string {
	if len(r.cfg.EnvNames) == 0 {
		return "None are; omit env."
	}
	return "Allowed: " + strings.Join(r.cfg.EnvNames, ", ") + "."
}
