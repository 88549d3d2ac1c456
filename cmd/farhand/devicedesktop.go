package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"

	"github.com/farhand/farhand/cmd/farhand/demotools"
	"github.com/farhand/farhand/cmd/farhand/desktop"
	"github.com/farhand/farhand/cmd/farhand/nodetools"
	"github.com/farhand/farhand/ws/client"
)

// desktopOptions are those of a device that is the computer itself.
type desktopOptions struct {
	offered bool
	list    bool
	confirm string
	allow   []string
	run     []string
	files   string

	camera, microphone string

	autostart, install bool
}

func (o *desktopOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.offered, "desktop", false, "also offer what this computer can do: notify, screenshot, run, …")
	f.BoolVar(&o.list, "list", false, "show the tools of --desktop, or why one is missing, and exit")
	f.StringVar(&o.confirm, "confirm", "", "with --desktop: ask by terminal or notification, or decide by policy, "+
		"which allows what --allow names (default: the first of them that works here)")
	f.StringSliceVar(&o.allow, "allow", nil, "with --desktop: tools that run without a question, comma-separated")
	f.StringArrayVar(&o.run, "allow-run", nil, "with --desktop: a command that run runs without a question, such as "+
		"'uptime' or 'df *'; * is any further arguments without options, ** also options; repeatable")
	f.StringVar(&o.files, "files", "", "with --desktop: the folder of file_list, file_read and file_write")
	f.StringVar(&o.camera, "camera", "", "with --desktop: the camera as ffmpeg takes it, FORMAT:INPUT "+
		"(default: those that the system knows)")
	f.StringVar(&o.microphone, "microphone", "", "with --desktop: the microphone as ffmpeg takes it, FORMAT:INPUT "+
		"(default: the system's)")
	f.BoolVar(&o.autostart, "autostart", false, "print what starts this command when this user logs in, and exit")
	f.BoolVar(&o.install, "install", false, "with --autostart: install it instead")
}

// check returns an error for options that need --desktop, and for those that do not go together.
func (o *desktopOptions) check() error {
	switch {
	case o.install && !o.autostart:
		return errors.New("--install requires --autostart")
	case o.autostart && o.confirm == string(desktop.ByTerminal):
		return errors.New("--autostart has no terminal to ask at: use --confirm notification or policy")
	case o.offered:
		return nil
	}
	for name, given := range map[string]bool{
		"--list":    o.list,
		"--confirm": o.confirm != "", "--allow": len(o.allow) > 0, "--allow-run": len(o.run) > 0,
		"--files": o.files != "", "--camera": o.camera != "", "--microphone": o.microphone != "",
	} {
		if given {
			return fmt.Errorf("%s requires --desktop", name)
		}
	}
	return nil
}

// asksHere reports whether questions may be asked at the terminal.
func (o *desktopOptions) asksHere() bool {
	return o.offered && (o.confirm == "" || o.confirm == string(desktop.ByTerminal))
}

// desktopConfig returns what the options say about this computer.
func (a *application) desktopConfig(o deviceOptions, terminal *terminalApprover) (desktop.Config, error) {
	location, err := parseLocation(o.location)
	d := o.desktop
	cfg := desktop.Config{
		Environ: a.environ, Confirm: desktop.Confirm(d.confirm), Allow: d.allow, Commands: d.run, Folder: d.files,
		Camera: d.camera, Microphone: d.microphone, Location: location,
	}
	if terminal != nil {
		cfg.Terminal = terminal.permit
	}
	return cfg, err
}

// openedDesktop is this computer while it is a device.
type openedDesktop struct {
	*desktop.Desktop
	tools []demotools.Tool
	stop  func() error
}

// openDesktop returns this computer with the tools that it can offer. stop must be called.
func (a *application) openDesktop(
	ctx context.Context, o deviceOptions, terminal *terminalApprover,
) (opened openedDesktop, err error) {
	cfg, err := a.desktopConfig(o, terminal)
	if err != nil {
		return opened, err
	}
	stopCanvas := func() error { return nil }
	if desktop.Opens(cfg) {
		cfg.Canvas, stopCanvas, err = a.serveCanvas(ctx, func(ctx context.Context, url string) error {
			return opened.Open(ctx, url)
		})
		if err != nil {
			return opened, err
		}
	}
	if opened.Desktop, err = desktop.New(ctx, cfg); err != nil {
		return opened, errors.Join(err, stopCanvas())
	}
	var missing []string
	for _, offer := range opened.Offers(ctx) {
		if offer.Missing != "" {
			missing = append(missing, offer.Name)
			continue
		}
		opened.tools = append(opened.tools, offer.Tool)
	}
	if len(missing) > 0 {
		fmt.Fprintf(a.out, "not offered: %s (farhand device --desktop --list says why)\n", strings.Join(missing, ", "))
	}
	opened.stop = func() error { return errors.Join(stopCanvas(), opened.Close()) }
	return opened, nil
}

// listDesktop prints the tools of this computer, and why others are missing.
func (a *application) listDesktop(ctx context.Context, o deviceOptions) error {
	cfg, err := a.desktopConfig(o, nil)
	if err != nil {
		return err
	}
	cfg.Canvas = nodetools.NewCanvas(false)
	cfg.Confirm = "" // nothing is asked
	d, err := desktop.New(ctx, cfg)
	if err != nil {
		return err
	}
	for _, offer := range d.Offers(ctx) {
		if offer.Missing != "" {
			fmt.Fprintf(a.out, "%-18s -    %s\n", offer.Name, oneLine(offer.Missing, maxNotification))
			continue
		}
		fmt.Fprintf(a.out, "%-18s yes  by %s\n", offer.Name, oneLine(offer.By, shownID))
	}
	return d.Close()
}

// approverOf returns what asks about calls that need approval, as this computer asks about its tools; nil if it asks
// nothing.
func approverOf(ask desktop.Ask) client.Approver {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, q client.Question) client.Decision {
		switch ask(ctx, desktop.Question{Text: strings.TrimSpace(questionText(q)), Lasting: true}) {
		case desktop.Once:
			return client.AllowOnce
		case desktop.Always:
			return client.AllowAlways
		case desktop.No:
			return client.Deny
		}
		return "" // the decision is made elsewhere
	}
}

// autostart prints or installs what starts this command when its user logs in.
func (a *application) autostart(ctx context.Context, o deviceOptions) error {
	program, err1 := os.Executable()
	dir, err2 := os.Getwd()
	home, err3 := os.UserHomeDir()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	args, err := autostartArgs(a.args, o.remote)
	if err != nil {
		return err
	}
	what := desktop.Start{
		Program: program, Dir: dir, Args: args, Home: home, SearchPath: env.ToMap(a.environ)["PATH"],
	}
	if runtime.GOOS == "windows" {
		me, err := user.Current()
		if err != nil {
			return err
		}
		what.User = me.Uid
	}
	start, err := desktop.NewAutostart(runtime.GOOS, what)
	if err != nil {
		return err
	}
	if !o.desktop.install {
		fmt.Fprint(a.out, start.Text)
		fmt.Fprintf(a.err, "To install this as %s, add --install.\n", start.Path)
		return nil
	}
	if err := start.Install(ctx); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "installed %s\n", start.Path)
	return nil
}

// autostartArgs returns the arguments of a command that starts by itself: what the environment says about the gateway
// becomes a part of it, but its token never does.
func autostartArgs(args []string, r remote) ([]string, error) {
	isFlag := func(arg string, names ...string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return slices.Contains(names, name)
	}
	if slices.ContainsFunc(args, func(arg string) bool { return isFlag(arg, "--token") }) {
		return nil, errors.New("--autostart stores no token: remove --token and use --pair")
	}
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return isFlag(arg, "--autostart", "--install")
	})
	for _, f := range [][2]string{{"--server", r.server}, {"--ca", r.trust.file}} {
		given := slices.ContainsFunc(kept, func(arg string) bool { return isFlag(arg, f[0]) })
		if f[1] != "" && !given {
			kept = append(kept, f[0], f[1])
		}
	}
	return kept, nil
}
