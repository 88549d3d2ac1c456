package desktop

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	unitName = "farhand-device"
	plistID  = "farhand.device"
)

// Autostart is what makes a system start a program when its user logs in.
type Autostart struct {
	Path string // of the file
	Text string

	system string
}

// Start is what a system starts.
type Start struct {
	Program, Dir string
	Args         []string
	Home         string // of the user
	SearchPath   string // PATH, which macOS does not give to programs that it starts
	User         string // id of the user, on Windows
}

// NewAutostart returns what makes a system, as runtime.GOOS names it, start a program.
func NewAutostart(system string, s Start) (Autostart, error) {
	a := Autostart{system: system}
	switch system {
	case "linux":
		a.Path = filepath.Join(s.Home, ".config/systemd/user", unitName+".service")
		a.Text = systemdUnit(s)
	case "darwin":
		a.Path = filepath.Join(s.Home, "Library/LaunchAgents", plistID+".plist")
		a.Text = launchdPlist(s)
	case "windows":
		a.Path = filepath.Join(s.Home, "AppData", "Local", "Farhand", unitName+".xml")
		a.Text = scheduledTask(s)
	default:
		return a, fmt.Errorf("autostart is not implemented for %s", system)
	}
	return a, nil
}

func systemdUnit(s Start) string {
	words := []string{systemdWord(s.Program)}
	for _, arg := range s.Args {
		words = append(words, systemdWord(arg))
	}
	return `# Starts with the desktop of its user. Without --pair, the EnvironmentFile has FARHAND_TOKEN.
[Unit]
Description=Farhand: this desktop is a device
PartOf=graphical-session.target
After=graphical-session.target

[Service]
ExecStart=` + strings.Join(words, " ") + `
WorkingDirectory=` + strings.ReplaceAll(s.Dir, "%", "%%") + `
EnvironmentFile=-%h/.config/farhand/device.env
Restart=on-failure
RestartSec=10

[Install]
WantedBy=graphical-session.target
`
}

// systemdWord quotes a word of ExecStart.
func systemdWord(word string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`, "\n", `\n`).Replace(word) + `"`
}

func launchdPlist(s Start) string {
	var words strings.Builder
	for _, word := range append([]string{s.Program}, s.Args...) {
		words.WriteString("\n    <string>" + escapeXML(word) + "</string>")
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>` + plistID + `</string>
  <key>ProgramArguments</key>
  <array>` + words.String() + `
  </array>
  <key>WorkingDirectory</key>
  <string>` + escapeXML(s.Dir) + `</string>
  <key>EnvironmentVariables</key>
  <dict>
    <key>PATH</key>
    <string>` + escapeXML(s.SearchPath) + `</string>
  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>10</integer>
  <key>LimitLoadToSessionType</key>
  <string>Aqua</string>
</dict>
</plist>
`
}

func scheduledTask(s Start) string {
	words := make([]string, len(s.Args))
	for i, arg := range s.Args {
		words[i] = windowsWord(arg)
	}
	return `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>Farhand: this desktop is a device</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>` + escapeXML(s.User) + `</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>` + escapeXML(s.User) + `</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>999</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>` + escapeXML(s.Program) + `</Command>
      <Arguments>` + escapeXML(strings.Join(words, " ")) + `</Arguments>
      <WorkingDirectory>` + escapeXML(s.Dir) + `</WorkingDirectory>
    </Exec>
  </Actions>
</Task>
`
}

// windowsWord quotes a word as programs of Windows split their command line: quotes get a backslash, and backslashes
// before a quote another one.
func windowsWord(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n\"") {
		return word
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for _, r := range word {
		switch r {
		case '\\':
			slashes++
			continue
		case '"':
			slashes = 2*slashes + 1
		}
		b.WriteString(strings.Repeat(`\`, slashes))
		slashes = 0
		b.WriteRune(r)
	}
	b.WriteString(strings.Repeat(`\`, 2*slashes) + `"`)
	return b.String()
}

func escapeXML(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a Buffer does not fail
	return b.String()
}

// registerTime bounds the programs that make a system read its file.
const registerTime = 30 * time.Second

// Install writes the file, and makes the system read it. The program starts immediately, again if it runs, or with the
// next login on Windows.
func (a Autostart) Install(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(a.Path, a.encode(), 0o600); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, registerTime)
	defer stop()
	for _, args := range a.commands() {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil && !(args[0] == "launchctl" && args[1] == "bootout") { // it fails if the agent does not run
			return fmt.Errorf("%s was written, but %s failed: %w%s", a.Path, strings.Join(args, " "), err,
				remark(string(out[:min(len(out), maxError)])))
		}
	}
	return nil
}

// encode returns the file's bytes. Windows reads tasks in UTF-16.
func (a Autostart) encode() []byte {
	if a.system != "windows" {
		return []byte(a.Text)
	}
	return append([]byte{0xff, 0xfe}, littleEndian(a.Text)...)
}

func (a Autostart) commands() [][]string {
	switch a.system {
	case "darwin":
		session := fmt.Sprintf("gui/%d", os.Getuid())
		return [][]string{
			{"launchctl", "bootout", session + "/" + plistID},
			{"launchctl", "bootstrap", session, a.Path},
		}
	case "windows":
		return [][]string{{"schtasks", "/Create", "/F", "/TN", unitName, "/XML", a.Path}}
	}
	return [][]string{
		{"systemctl", "--user", "daemon-reload"},
		{"systemctl", "--user", "enable", unitName + ".service"},
		{"systemctl", "--user", "restart", unitName + ".service"},
	}
}
