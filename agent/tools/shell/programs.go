package shell

import (
	"regexp"
	"slices"
	"strings"
)

// allows returns an error if a program may not run with these arguments.
func (a allowlist) allows(words []string) error {
	name := words[0]
	if strings.Contains(name, "/") {
		return forbidden("%.80q is a path; in mode allowlist call programs by name.", name)
	}
	if never[name] {
		return forbidden("%q is a shell builtin or keyword that cannot be allowed: it changes other words.", name)
	}
	err := a.notListed(name)
	longest := 0
	for _, entry := range a.allow {
		first := strings.Fields(entry)
		if len(first) <= longest || len(first) > len(words) || !slices.Equal(first, words[:len(first)]) {
			continue
		}
		if why := a.mayFollow(first, words[len(first):]); why != nil {
			err = why
			continue
		}
		longest, err = len(first), nil
	}
	return err
}

func (a allowlist) notListed(name string) error {
	if len(a.allow) == 0 {
		return forbidden("%.80q is not allowed: policy allows no programs.", name)
	}
	list := strings.Join(a.allow, ", ")
	if len(list) > 500 {
		list = list[:strings.LastIndex(list[:500], ",")] + " and more"
	}
	return forbidden("%.80q is not allowed, or not with these arguments. Allowed are: %s.", name, list)
}

// mayFollow returns an error if rest may not follow the arguments that the operator has named. Those may be anything.
func (a allowlist) mayFollow(named, rest []string) error {
	name := named[0]
	if len(named) == 1 && runs(name) {
		return forbidden("%q runs programs or code from its arguments or files, so policy cannot allow it by "+
			"name alone: an operator must also list its first arguments.", name)
	}
	if len(named) == 1 && a.inside && roams[name] {
		return forbidden("%q has a language that can read any file, so policy can allow it by name alone "+
			"only in the sandbox: elsewhere an operator must also list its first arguments.", name)
	}
	h, paths := hazards[name], anywhere
	if whole[name] {
		paths = outside
	}
	if h.writesOperand(rest) {
		return forbidden("%q writes to its second argument. In mode allowlist give it one argument, and "+
			"option values without a space, such as -f1.", name)
	}
	for i, word := range rest {
		if h.matches(word, i == 0 && len(named) == 1) {
			return forbidden("%q is not allowed with the argument %.80q in mode allowlist: it runs programs, writes "+
				"files, or accesses data outside the workspace.", name, word)
		}
		if a.inside && (outside.MatchString(word) || paths.MatchString(word)) {
			return forbidden("The argument %.80q may name a file outside the workspace: in mode allowlist no path may "+
				"begin with a slash or have \"..\". Name files relative to the workspace.", word)
		}
	}
	return nil
}

var (
	// outside matches arguments that may name a file outside of the workspace: an absolute path or one with "..". The
	// path may be the whole argument, or follow an option, or be in a list.
	outside = regexp.MustCompile(`^/|[=:,@]/|^-[A-Za-z0-9]+/|(^|[/=:,@]|^-[A-Za-z0-9]+)\.\.($|[/:,])`)

	// anywhere also matches such a path inside an argument: after a quote, a bracket or a space. It does not match [/],
	// or a slash before a space.
	anywhere = regexp.MustCompile("(^|[\\s\"'`(\\[{<>|;&!\\\\])(/($|[^\\]\\s])|\\.\\.($|[/\"'`)\\]},;]))")
)

// runs reports whether a program runs code from its arguments or files: interpreters, wrappers, editors, pagers, build
// and download tools. It ignores version suffixes: python3.12 is python.
func runs(name string) bool {
	name = strings.ToLower(name)
	front, _, _ := strings.Cut(name, ".")
	return runners[name] || runners[front] || runners[strings.TrimRight(name, "0123456789.-")] ||
		runners[strings.TrimRight(front, "0123456789-")]
}

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

var (
	// never are shell builtins and keywords that take code, or that evaluate variable names.
	never = set(`. source eval exec command builtin trap set shopt alias unalias export readonly unset read let declare
		typeset local getopts mapfile readarray enable hash bind complete compgen compopt fc history coproc function
		wait jobs time if then else elif fi for while until do done case esac select in { } ! [[ ]]`)

	runners = set(`sh ash bash dash ksh mksh zsh fish csh tcsh rbash busybox toybox
		env xargs nohup nice ionice timeout time setsid stdbuf watch parallel chronic unbuffer flock taskset chrt
		sudo su doas pkexec runuser setpriv chroot unshare nsenter capsh setarch linux32 linux64 prlimit systemd-run
		start-stop-daemon at batch crontab entr inotifywait script scriptreplay expect screen tmux dtach
		strace ltrace gdb lldb perf valgrind bwrap firejail docker podman nerdctl kubectl ctr runc ld ld-linux
		python pypy perl ruby irb node nodejs deno bun lua luajit php tclsh wish guile scheme racket r rscript julia
		java jshell groovy scala kotlin erl elixir ghc ghci runghc ocaml swift dotnet mono pwsh powershell osascript
		awk gawk mawk nawk original-awk sed gsed bc dc m4 gnuplot
		ed red ex vi view vim vimdiff nvim rvim nano pico emacs joe mcedit less more most pg man info w3m lynx links
		make gmake bmake cmake ninja meson bazel gcc cc cpp g++ c++ clang tcc go cargo rustc gradle mvn ant
		npm npx yarn pnpm pip pipx uv poetry gem bundle rake composer apt apt-get dpkg yum dnf rpm apk brew snap
		git hg svn cvs bzr sqlite sqlite3 psql mysql mariadb mongo mongosh redis-cli
		curl wget fetch aria2c ftp sftp tftp ssh scp sshfs telnet nc ncat netcat socat openssl rsh rexec rlogin
		cpio pax ar unzip bsdtar 7z 7za run-parts run-mailcap xdg-open open see logrotate dd install-info
		mail mailx sendmail
		tar zip rsync
		zless zmore bzless bzmore xzless xzmore zstdless bat batcat delta journalctl systemctl loginctl timedatectl
		busctl fzf ack
		aa-exec choom cpulimit dbus-run-session eatmydata fakeroot faketime grc logsave multitime pexec proxychains
		rlwrap setlock sg softlimit ssh-agent sshpass torify torsocks unbuffer xvfb-run numactl cgexec daemonize
		ip nmap tcpdump tshark iftop mtr openvpn nginx ansible ansible-playbook puppet terraform virsh vagrant
		msgfilter exiftool ffmpeg convert magick mogrify pandoc tex latex pdftex pdflatex xelatex lualatex latexmk nroff
		troff groff eqn tbl soelim gimp octave sage jrunscript jjs tsc nix nix-shell conda mamba rustup cpan cpanm
		luarocks cowsay cowthink espeak dialog whiptail ispell aspell restic borg rclone debugfs dmsetup yash elvish
		posh sash osh oil ysh nu xonsh ion tmate openvt newgrp ksu su-exec gosu tini dumb-init s6-setuidgid chpst reptyr
		nodemon watchexec just task doit tox nox pytest phpunit bundler ts-node tsx esbuild bunx pnpx corepack ipython
		jupyter pry facter knife cobc prove perldoc perlbrew raku dune opam sbt lein clj clojure bb babashka kotlinc
		scalac groovyc javac jar maven zig nim crystal dmd rdmd gforth sbcl clisp ecl ccl gcl newlisp picolisp janet
		fennel hy chez csi gsi bigloo mit-scheme swipl gprolog maxima gp pari ginsh scilab ngspice vipw vigr rview
		emacsclient kakoune hx helix micro ne vile ncdu ranger mutt alpine git-shell tig gitui lazygit lftp psftp
		lwp-request sqlplus tdbtool pic zsoelim enscript dvips gs xdvi pidstat tasksh scanmem crash gtester xdotool
		ssh-keygen rpmquery rpmverify rpmdb zypper opkg aptitude apt-file arj nft nasm sqlmap wireshark varnishncsa
		mosquitto check_by_ssh blender inkscape soffice libreoffice unoconv wkhtmltopdf chromium google-chrome firefox
		csvtool yt-dlp youtube-dl gcloud aws az helm lxc lxd flatpak mount umount`)

	// roams are programs with a language that reads and writes files, but runs no programs.
	roams = set(`jq gojq jaq yq xq tomlq dasel mlr miller xmllint xmlstarlet xsltproc fx`)

	// whole are programs that, by their manuals, only accept a path as a whole argument, after an option, or in a list.
	// docs/tools.md lists the findings.
	whole = set(`ls cat grep egrep fgrep find echo date head tail wc pwd true false printf test [ sort uniq cut tr du
		file stat diff cmp comm join paste nl tac rev fold fmt od md5sum sha1sum sha256sum sha512sum cksum cp mv mkdir touch
		rm sed basename dirname seq`)
)

// hazard describes the dangerous arguments of an allowed program.
type hazard struct {
	short string   // option letters, alone or combined
	long  []string // long options; abbreviations also match
	words []string // prefixes of arguments
	chars string   // characters that no argument may contain
	bare  bool     // the first argument may be option letters without a dash

	second bool // the second operand names an output file
}

// writesOperand reports whether the arguments name an output file. Option values count as operands.
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

// matches reports whether an argument is dangerous. It also checks arguments after "--".
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

// hazards are the dangerous arguments of programs that look harmless.
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
	"tar": { // extracted links may lead out of the workspace
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

	// digest is for programs that read a list of files from a file.
	digest = hazard{short: "c", long: []string{"--check"}}

	// evaluates is for Bash builtins that evaluate a variable name, including substitutions in it.
	evaluates = hazard{words: []string{"-v", "-R"}}
)
