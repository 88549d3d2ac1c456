package shell

import (
	"slices"
	"strings"
)

// hazard is what a program that people allow must not be called with.
type hazard struct {
	short string   // letters of options, alone or among others
	long  []string // options, which may be abbreviated
	words []string // how arguments begin
	chars string   // that no argument may have
	bare  bool     // the first argument may be letters of options without a dash

	second bool // the second argument that is no option names a file to write
}

// writesOperand reports whether arguments name a file to write. A value of an option counts as an argument.
func (h hazard) writesOperand(words []string) bool {
	operands, options := 0, true
	for _, word := range words {
		switch {
		case options && word == "--":
			options = false
		case !options || word == "-" || !strings.HasPrefix(word, "-"):
			operands++
		}
	}
	return h.second && operands > 1
}

// matches reports whether an argument is dangerous. What stands behind "--" is looked at, too.
func (h hazard) matches(word string, first bool) bool {
	name, _, _ := strings.Cut(word, "=")
	switch {
	case h.chars != "" && strings.ContainsAny(word, h.chars):
		return true
	case slices.ContainsFunc(h.words, func(w string) bool { return strings.HasPrefix(word, w) }):
		return true
	case strings.HasPrefix(word, "--"):
		return len(name) > 2 && slices.ContainsFunc(h.long, func(l string) bool { return strings.HasPrefix(l, name) })
	case strings.HasPrefix(word, "-"), first && h.bare:
		return h.short != "" && strings.ContainsAny(word, h.short)
	}
	return false
}

// hazards is what is known of programs that look harmless.
var hazards = map[string]hazard{
	"find": {words: []string{"-exec", "-ok", "-delete", "-fprint", "-fls", "-files0-from", "-follow", "-L", "-H"}},
	"sort": {short: "oT", long: []string{"--output", "--compress-program", "--temporary-directory", "--files0-from"}},
	"wc":   {long: []string{"--files0-from"}},
	"du":   {short: "L", long: []string{"--files0-from", "--dereference"}},
	"grep": grepHazard, "egrep": grepHazard, "fgrep": grepHazard,
	"rg":    {short: "Lz", long: []string{"--pre", "--hostname-bin", "--follow", "--search-zip"}},
	"date":  {short: "s", long: []string{"--set"}},
	"file":  {short: "fCzZ", long: []string{"--files-from", "--compile", "--uncompress", "--uncompress-noreport"}},
	"split": {long: []string{"--filter"}},
	"sdiff": {short: "o", long: []string{"--output", "--diff-program"}},
	"diff3": {long: []string{"--diff-program"}},
	"tree":  {short: "loR", long: []string{"--fromfile", "--fromtabfile"}},
	"zip":   {short: "Tm", chars: "@", long: []string{"--unzip-command", "--test", "--move", "--names-stdin"}},
	"fd":    fdHazard, "fdfind": fdHazard,
	"uniq": {second: true}, "xxd": {second: true},
	"shuf": {short: "o", long: []string{"--output"}}, "iconv": {short: "o", long: []string{"--output"}},
	"install": {short: "s", long: []string{"--strip", "--strip-program"}},
	"md5sum":  digest, "sha1sum": digest, "sha224sum": digest, "sha256sum": digest, "sha384sum": digest,
	"sha512sum": digest, "b2sum": digest, "cksum": digest,
	"tar": { // what is taken out of an archive may be links that lead out of the workspace
		short: "IFTPxgh", chars: ":", bare: true,
		long: []string{
			"--extract", "--get",
			"--use-compress-program", "--to-command", "--checkpoint-action", "--info-script", "--new-volume-script",
			"--rsh-command", "--rmt-command", "--absolute-names", "--files-from", "--dereference",
			"--remove-files", "--index-file", "--volno-file", "--listed-incremental",
		},
	},
	"rsync": {
		short: "eLk", chars: ":",
		long: []string{"--rsh", "--rsync-path", "--daemon", "--files-from", "--copy-links", "--copy-dirlinks"},
	},
	"git": {
		short: "cCoO",
		long: []string{
			"--upload-pack", "--receive-pack", "--exec", "--exec-path", "--config", "--config-env", "--ext-diff",
			"--textconv", "--output", "--output-directory", "--open-files-in-pager", "--git-dir", "--work-tree",
			"--no-index", "--template", "--separate-git-dir",
		},
	},
	"test": evaluates, "[": evaluates, "printf": evaluates,
}

var (
	grepHazard = hazard{short: "R", long: []string{"--dereference-recursive"}}

	fdHazard = hazard{short: "xXL", long: []string{"--exec", "--exec-batch", "--follow"}}

	// digest is of programs that read a list of files from a file.
	digest = hazard{short: "c", long: []string{"--check"}}

	// evaluates is of words of Bash that evaluate the name of a variable, with the substitutions in it.
	evaluates = hazard{words: []string{"-v", "-R"}}
)
